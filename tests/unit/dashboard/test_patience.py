"""Connections that never come to ask anything, over real sockets."""

import asyncio
import contextlib
import socket

import pytest

from training_gym.dashboard.patience import Patience
from training_gym.dashboard.serving import listen, run_server

BEGINNING = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
NEVER_S = 3600.0


async def answering(scope, receive, send):
    """Says how it was asked, without waiting for the body."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(patience):
    started = asyncio.Event()
    with listen("127.0.0.1", 0) as listening:
        running = asyncio.create_task(
            run_server(answering, listening, started.set, patience=patience)
        )
        await started.wait()
        opened = []

        async def connect(*sent):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            opened.append(writer)
            for each in sent:
                writer.write(each)
            return reader, writer

        try:
            yield connect
        finally:
            for writer in opened:
                writer.close()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


def play(work):
    return asyncio.run(asyncio.wait_for(work, 60))


async def drip(writer):
    """A byte now and then, for ever."""
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


ENDLESS = {
    "headers": [BEGINNING + b"x-endless: "],
    "first line": [b"G"],
    "headers after an answer": [BEGINNING + b"\r\n", BEGINNING + b"x-endless: "],
    "a body after its answer": [BEGINNING + b"content-length: 1000000000\r\n\r\n"],
}


@pytest.mark.parametrize("sent", ENDLESS.values(), ids=list(ENDLESS))
def test_whoever_never_ends_what_they_ask_is_hung_up_on(sent):
    async def go():
        async with serving(Patience(headers_s=0.3)) as connect:
            reader, writer = await connect(*sent)
            dripping = asyncio.create_task(drip(writer))
            with contextlib.suppress(ConnectionError):
                await reader.read()  # until they have hung up
            dripping.cancel()

    play(go())


@pytest.mark.parametrize("sent", ENDLESS.values(), ids=list(ENDLESS))
def test_whoever_stops_in_the_middle_is_told_and_hung_up_on(sent):
    async def go():
        async with serving(Patience(headers_s=0.1)) as connect:
            reader, writer = await connect(sent[0])
            answered = b"\r\n\r\n" in sent[0]
            heard = await reader.readuntil(b"ok") if answered else b""
            for each in [*sent[1:], b"x"]:
                writer.write(each)
            return answered, heard + await reader.read()

    answered, heard = play(go())
    assert heard.startswith(b"HTTP/1.1 200" if answered else b"HTTP/1.1 408")
    assert b"HTTP/1.1 408 Request Timeout" in heard


def test_silence_is_hung_up_on_without_a_word():
    async def go():
        async with serving(Patience(headers_s=0.1)) as connect:
            reader, _ = await connect()
            return await reader.read()

    assert play(go()) == b""


def test_the_longest_standing_of_too_many_goes_and_others_are_answered():
    async def go():
        patience = Patience(headers_s=NEVER_S, most_waiting=3)
        async with serving(patience) as connect:
            slow = []
            for number in range(5):
                slow.append(await connect(BEGINNING))
                await until(lambda n=number: patience.num_waiting == min(n + 1, 3))
            gone = [await reader.read() for reader, _ in slow[:2]]
            reader, _ = await connect(BEGINNING + b"\r\n")
            answer = await reader.readuntil(b"ok")
            for _, writer in slow[3:]:  # they did not lose their place to it
                writer.write(b"\r\n")
            others = [await reader.readuntil(b"ok") for reader, _ in slow[3:]]
            await until(lambda: not patience.num_waiting)
            return gone, [answer, *others]

    gone, answers = play(go())
    assert all(b"408" in each or not each for each in gone)
    assert all(each.startswith(b"HTTP/1.1 200 OK") for each in answers)


def test_a_connection_that_asks_again_and_again_is_kept():
    async def go():
        patience = Patience(headers_s=0.5)
        async with serving(patience) as connect:
            reader, writer = await connect()
            loop = asyncio.get_running_loop()
            began, count = loop.time(), 0
            while loop.time() < began + 3 * patience.headers_s:
                writer.write(BEGINNING)
                await asyncio.sleep(0.01)
                writer.write(b"\r\n")
                assert b"200 OK" in await reader.readuntil(b"ok")
                count += 1
            return count

    assert play(go()) > 1


def test_one_that_went_away_waits_no_longer():
    async def go():
        patience = Patience(headers_s=NEVER_S)
        async with serving(patience) as connect:
            _, writer = await connect(BEGINNING)
            await until(lambda: patience.num_waiting == 1)
            writer.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
            writer.close()
            await until(lambda: patience.num_waiting == 0)

    play(go())
