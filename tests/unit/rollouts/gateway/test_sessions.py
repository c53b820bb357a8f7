"""Sessions, secrets, retries and limits, over plain HTTP."""

import asyncio
import json
import socket

import httpx
import pytest
from tests.unit.rollouts.gateway.conftest import OWN, seat

from training_gym.rollouts.gateway.limits import GatewayLimits
from training_gym.spec.errors import EngineError, PlatformError

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


class EpisodeOver(BaseException):
    """As the runner's limits are: no Exception."""


def bearer(session):
    return {"authorization": f"Bearer {session.key}"}


async def ask(http, session, body=CHAT, path="/v1/chat/completions", **headers):
    return await http.post(session.url + path, json=body, headers={**bearer(session), **headers})


def gated(codec):
    """A script that waits for `gate`, and counts what was asked."""
    gate = asyncio.Event()
    count = 0

    async def answer(prompt, key):
        nonlocal count
        count += 1
        mine = count
        await gate.wait()
        return f"answer {mine}"

    return gate, answer


def test_a_session_is_found_by_address_by_key_and_by_secret_address(serve, play):
    async def talk():
        async with serve(["a", "b", "c"]) as served, httpx.AsyncClient() as http:
            session, base = served.session, served.gateway.url
            paths = {
                f"{session.url}/v1/chat/completions": bearer(session),
                f"{base}/v1/chat/completions": {"x-api-key": session.key},
                f"{session.private_url}/v1/chat/completions": {},
            }
            texts = []
            for url, headers in paths.items():
                got = await http.post(url, json=CHAT, headers=headers)
                texts.append(got.json()["choices"][0]["message"]["content"])
            assert texts == ["a", "b", "c"]
            models = await http.get(f"{session.url}/v1/models", headers=bearer(session))
            assert models.json()["data"][0]["id"] == "policy"
            assert session.environment["OPENAI_BASE_URL"] == f"{session.url}/v1"

    play(talk())


def test_no_key_a_forged_one_and_anothers_learn_nothing(serve, play, codec):
    async def talk():
        async with serve(["a"]) as served, httpx.AsyncClient() as http:
            gateway, session = served.gateway, served.session
            _, policy = seat(codec, served.sampler, "other")
            other = gateway.open(policy, name="other", sampling=OWN)
            answers = [
                await http.post(session.url + "/v1/chat/completions", json=CHAT),
                await ask(http, session, authorization="Bearer forged"),
                await ask(http, session, authorization=f"Bearer {other.key}"),
                await ask(http, session, authorization="Bearer \u00e9".encode("latin-1")),
                await http.post(f"{gateway.url}/s/none/v1/messages", json={}),
                await http.post(f"{gateway.url}/k/none/reward", json={"value": 1}),
            ]
            assert [got.status_code for got in answers] == [401] * 6
            assert len({got.json()["error"]["message"] for got in answers}) == 1
            assert served.sampler.calls == []
            await session.close()
            assert (await ask(http, session)).status_code == 401
            assert gateway.num_sessions == 1

    play(talk())


def test_a_reward_is_posted(serve, play):
    async def talk():
        async with serve([]) as served, httpx.AsyncClient() as http:
            session = served.session
            sent = {"value": 0.5, "components": {"tests": 1.0}}
            assert (await ask(http, session, sent, "/reward")).status_code == 200
            assert session.score.components == {"tests": 1.0}
            for wrong in ({"value": "high"}, {"points": 1}, [1]):
                assert (await ask(http, session, wrong, "/reward")).status_code == 400
            infinite = await http.post(
                session.url + "/reward", content=b'{"value": 1e999}', headers=bearer(session)
            )
            assert infinite.status_code == 400
            assert session.score.value == 0.5

    play(talk())


def test_a_retry_is_answered_from_memory_and_a_second_question_is_not(serve, play):
    async def talk():
        async with serve(["a", "b", "c"]) as served, httpx.AsyncClient() as http:
            session = served.session

            async def text(**headers):
                got = await ask(http, session, **headers)
                return got.json()["choices"][0]["message"]["content"]

            again = {"x-stainless-retry-count": "1"}
            assert [await text(), await text(**again)] == ["a", "a"]
            assert [await text(), await text(**again)] == ["b", "b"]
            keyed = {"idempotency-key": "k1"}
            assert [await text(**keyed), await text(**keyed)] == ["c", "c"]
            changed = await ask(http, session, {**CHAT, "max_tokens": 3}, **keyed)
            assert changed.status_code == 422
            assert (session.requests, session.repeats) == (6, 3)
            assert len(served.record.trajectories()) == 3

    play(talk())


def test_who_comes_back_after_a_broken_connection_gets_the_answer_that_was_drawn(
    serve, play, codec
):
    async def talk():
        gate, script = gated(codec)
        async with serve(script) as served, httpx.AsyncClient() as http:
            session = served.session
            with pytest.raises(httpx.ReadTimeout):
                await http.post(
                    session.url + "/v1/chat/completions",
                    json=CHAT,
                    headers=bearer(session),
                    timeout=0.3,
                )
            while not all(e.listeners == 0 for e in session._exchanges.values()):
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(ask(http, session))
            await asyncio.sleep(0.1)
            gate.set()
            got = await waiting
            assert got.json()["choices"][0]["message"]["content"] == "answer 1"
            assert len(served.sampler.calls) == 1
            assert len(served.record.trajectories()) == 1

    play(talk())


def test_an_answer_for_a_client_that_never_returns_is_not_drawn_to_the_end(serve, play, codec):
    async def talk():
        _, script = gated(codec)
        limits = GatewayLimits(retry_grace_s=0.0)
        async with serve(script, limits=limits) as served, httpx.AsyncClient() as http:
            session = served.session
            with pytest.raises(httpx.ReadTimeout):
                await http.post(
                    session.url + "/v1/chat/completions",
                    json=CHAT,
                    headers=bearer(session),
                    timeout=0.3,
                )
            (exchange,) = session._exchanges.values()
            with pytest.raises(asyncio.CancelledError):
                await exchange.task
            assert served.record.trajectories() == ()

    play(talk())


def test_too_much_is_refused_with_the_time_to_come_again(serve, play, codec):
    async def talk():
        gate, script = gated(codec)
        limits = GatewayLimits(max_in_session=3, max_sampling=1, max_waiting=1)
        async with serve(script, limits=limits) as served, httpx.AsyncClient() as http:
            session = served.session
            asked = [asyncio.create_task(ask(http, session)) for _ in range(2)]
            while served.gateway._turnstile.waiting < 1:
                await asyncio.sleep(0.01)
            third = await ask(http, session)
            assert (third.status_code, third.headers["retry-after"]) == (429, "1")
            assert third.json()["error"]["code"] == "rate_limit_exceeded"
            gate.set()
            assert [got.status_code for got in await asyncio.gather(*asked)] == [200, 200]

    play(talk())


def test_a_limit_of_the_episode_ends_its_session_only(serve, play, codec):
    async def talk():
        async with serve(["a"]) as served, httpx.AsyncClient() as http:

            class Limited:
                async def sample(self, *_, **__):
                    raise EpisodeOver("8 turns")

            over = served.gateway.open(Limited(), name="over", sampling=OWN)
            for _ in range(2):
                got = await ask(http, over)
                assert got.status_code == 403
                assert got.json()["error"]["code"] == "episode_over"
            assert isinstance(over.ended_by, EpisodeOver)
            assert (await ask(http, served.session)).status_code == 200

    play(talk())


def test_a_sampler_that_fails_is_told_and_asked_again(serve, play):
    async def talk():
        broken = EngineError("no room", fix="wait")
        async with serve([broken, "b"]) as served, httpx.AsyncClient() as http:
            got = await ask(http, served.session)
            assert got.status_code == 400
            assert got.json()["error"]["message"] == "no room: wait"
            assert served.session.failure is broken
            again = await ask(http, served.session, **{"x-stainless-retry-count": "1"})
            assert again.json()["choices"][0]["message"]["content"] == "b"

    play(talk())


def test_a_long_wait_shows_signs_of_life(serve, play, codec):
    async def talk():
        gate, script = gated(codec)
        limits = GatewayLimits(patience_s=0.05, ping_every_s=0.05)
        async with serve(script, limits=limits) as served, httpx.AsyncClient() as http:
            body = {**CHAT, "stream": True}
            url = served.session.url + "/v1/chat/completions"
            headers = bearer(served.session)
            async with http.stream("POST", url, json=body, headers=headers) as got:
                lines = []
                async for line in got.aiter_lines():
                    lines.append(line)
                    if lines.count(": still sampling") == 2:
                        gate.set()
            data = [json.loads(x[6:]) for x in lines if x.startswith("data: {")]
            text = "".join(d["choices"][0]["delta"].get("content") or "" for d in data)
            assert text == "answer 1"
            assert "data: [DONE]" in lines

    play(talk())


def test_a_taken_port_is_said(serve, play):
    from training_gym.rollouts.gateway.gateway import Gateway

    async def talk():
        async with serve([]) as served:
            port = int(served.gateway.url.rpartition(":")[2])
            with pytest.raises(PlatformError, match=f"cannot listen on 127.0.0.1:{port}"):
                await Gateway.start(port=port)

    play(talk())


def test_answers_leave_at_once(serve, play):
    async def talk():
        async with serve(["Hi."]) as served:
            host, _, port = served.gateway.url.removeprefix("http://").partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            connections = served.gateway._server.server_state.connections
            while not connections:
                await asyncio.sleep(0.001)
            (connection,) = connections
            taken = connection.transport.get_extra_info("socket")
            # Or the second part of an answer waits 40 ms for the first to be acknowledged.
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            await writer.wait_closed()

    play(talk())
