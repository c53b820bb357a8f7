"""Many sessions at once, and clients that misbehave, against one real server."""

import asyncio
import gc
import json
import random
import sys

import pytest
from tests.unit.rollouts.gateway.conftest import OWN, seat

from training_gym.rollouts.gateway.limits import GatewayLimits
from training_gym.testing.scripted_sampler import ScriptedSampler

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/reward")


def chat(*texts):
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"model": "m", "messages": messages}


def echo(codec):
    """Answers with the last thing that was said, after a random while."""
    rng = random.Random(0)

    async def answer(prompt, key):
        await asyncio.sleep(rng.random() * 0.01)
        text = codec.decode(prompt.token_ids)
        return "heard " + text.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]

    return answer


class Harness:
    """A client of few lines: pools of real ones take the square of their connections."""

    def __init__(self, session):
        self.session = session
        self.host, port = session.url.removeprefix("http://").partition("/")[0].split(":")
        self.port = int(port)
        self.path = session.url.partition(f":{port}")[2]

    async def play(self, number, turns):
        """Every answer must be to its own question."""
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        said = []
        for turn in range(turns):
            said.append(f"{number}/{turn}")
            got = await self.post(chat(*said))
            text = got["choices"][0]["message"]["content"]
            assert text == f"heard {number}/{turn}"
            said.append(text)
        self.writer.close()
        await self.writer.wait_closed()

    async def post(self, value):
        body = json.dumps(value).encode()
        head = (
            f"POST {self.path}/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            f"authorization: Bearer {self.session.key}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        await self.writer.drain()
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
        data = await self.reader.readexactly(length)
        assert answer.startswith(b"http/1.1 200"), data
        return json.loads(data)


async def many(codec, gateway, count, turns):
    sampler = ScriptedSampler(codec, echo(codec))
    seats, plays = [], []
    for number in range(count):
        record, policy = seat(codec, sampler, f"e{number}")
        session = gateway.open(policy, name=f"e{number}", sampling=OWN)
        seats.append((number, record, session))
        plays.append(Harness(session).play(number, turns))
    await asyncio.gather(*plays)
    for number, record, session in seats:
        (made,) = record.trajectories()
        text = codec.decode(made.token_ids)
        assert text.count("<|im_start|>user") == turns
        for turn in range(turns):
            assert f"user\n{number}/{turn}<|im_end|>" in text
        assert record.forks == 0
        await session.close()
    assert gateway.num_sessions == 1


def test_a_hundred_sessions_at_once_keep_apart(serve, play, codec):
    async def talk():
        async with serve([]) as served:
            await many(codec, served.gateway, 100, 2)

    play(talk())


@pytest.mark.slow
def test_a_thousand_sessions_at_once_keep_apart(serve, codec):
    async def talk():
        async with serve([]) as served:
            await many(codec, served.gateway, 1000, 3)

    asyncio.run(asyncio.wait_for(talk(), 280))


def malformed(rng, key, session_path):
    """One bad request: path, headers and body."""
    good = json.dumps(chat("x")).encode()
    bodies = (
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b"[" * 50_000,
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": NaN}]}',
        good[: rng.randrange(len(good) - 1)],
        good.replace(b'"m"', rng.choice((b"1", b"null", b"{}", b"[1e999]"))),
        good.replace(b"user", rng.choice((b"tool", b"robot", b"assistant"))),
        good.replace(b'"model"', rng.choice((b'"no_such"', b'"seed"', b'"\\u0000"'))),
        b'{"model":"m","input":[{"type":"function_call"}],"prompt":[1,2],"max_tokens":0}',
        bytes(rng.randrange(256) for _ in range(rng.randrange(200))),
    )
    bearer = rng.choice((key, key, key, key[:-1], "", "tg-\u00e9", "x" * 5000))
    path = session_path + rng.choice((*PATHS, *PATHS, "/v1", "/", "/v1/../reward", "/%00"))
    headers = {"authorization": f"Bearer {bearer}".strip().encode("latin-1"), "content-type": "a/b"}
    return rng.choice(("POST", "POST", "POST", "PUT", "GET")), path, headers, rng.choice(bodies)


async def ask_once(address, data):
    """The status of one answer, over a connection of its own."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        line = await reader.readline()
        await reader.read()
        return int(line.split()[1])
    finally:
        writer.close()
        await writer.wait_closed()


async def attack(served, count):
    """Send bad requests, a few at once; returns the statuses that came back."""
    rng = random.Random(1)
    session = served.session
    base = served.gateway.url
    host, _, port = base.removeprefix("http://").partition(":")
    statuses = []

    async def some():
        while len(statuses) < count:
            where = rng.choice((session.url.removeprefix(base), "", "/s/none", "/k/none"))
            method, path, headers, body = malformed(rng, session.key, where)
            head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".encode()
            for name, value in {**headers, "content-length": str(len(body))}.items():
                head += name.encode() + b": " + value_bytes(value) + b"\r\n"
            status = await ask_once((host, int(port)), head + b"\r\n" + body)
            statuses.append(status)
            assert status >= 400, f"{method} {path} {body[:80]!r} got {status}"

    await asyncio.gather(*(some() for _ in range(4)))
    return statuses


def value_bytes(value):
    return value if isinstance(value, bytes) else value.encode()


def check_attack(served, statuses):
    assert all(400 <= status < 500 for status in statuses)
    assert served.gateway.application.faults == 0
    assert served.sampler.calls == []


def test_malformed_requests_are_the_clients_fault(serve, play):
    async def talk():
        async with serve([]) as served:
            check_attack(served, await attack(served, 300))

    play(talk())


@pytest.mark.slow
@pytest.mark.timeout(900)  # half a minute of processor time, on a machine that may be busy
def test_ten_thousand_malformed_requests_leave_nothing_behind(serve):
    async def talk():
        async with serve([]) as served:
            await attack(served, 500)  # whatever is made once is there now
            gc.collect()
            before = sys.getallocatedblocks()
            statuses = await attack(served, 10_000)
            gc.collect()
            assert len(statuses) >= 10_000
            check_attack(served, statuses)
            del statuses
            grown = sys.getallocatedblocks() - before
            assert grown < 5_000, f"{grown} blocks"  # a leak of one each would be 10,000

    asyncio.run(asyncio.wait_for(talk(), 880))


def test_who_stalls_lies_or_leaves_harms_nobody(serve, play, codec):
    async def talk():
        limits = GatewayLimits(
            body_timeout_s=0.5, max_body_bytes=10_000, retry_grace_s=0, send_timeout_s=1
        )
        async with serve(echo(codec), limits=limits) as served:
            gateway, session = served.gateway, served.session
            host, port = gateway.url.removeprefix("http://").split(":")
            path = session.url.removeprefix(gateway.url)

            async def raw(data, *, then_close=False):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                await writer.drain()
                if then_close:
                    writer.transport.abort()
                    return b""
                head = await reader.readline()
                writer.close()
                return head

            start = (
                f"POST {path}/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
                f"authorization: Bearer {session.key}\r\n"
            ).encode()
            body = json.dumps(chat("left")).encode()
            whole = start + b"content-length: %d\r\n\r\n" % len(body) + body
            stalled = [
                asyncio.create_task(raw(start + b"content-length: 500\r\n\r\n{")) for _ in range(20)
            ]
            left = [raw(whole, then_close=True) for _ in range(20)]
            cut = [raw(start + b"content-length: 500\r\n\r\n{", then_close=True) for _ in range(20)]
            large = raw(start + b"content-length: 20000\r\n\r\n")
            chunked = raw(
                start
                + b"transfer-encoding: chunked\r\n\r\n"
                + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 4
            )
            await asyncio.gather(*left, *cut)
            _, policy = seat(codec, served.sampler, "good")
            good = gateway.open(policy, name="good", sampling=OWN)
            await Harness(good).play("good", 3)
            assert b" 413 " in await large
            assert b" 413 " in await chunked
            for head in await asyncio.gather(*stalled):
                assert b" 408 " in head
            assert gateway._turnstile.waiting == 0

    play(talk())
