"""From an understood request to its answer on the wire, whatever the client does meanwhile."""

from __future__ import annotations

import asyncio
import contextlib

from training_gym.rollouts.gateway.asked import Asked, Dialect, Event
from training_gym.rollouts.gateway.connection import Connection, json_bytes
from training_gym.rollouts.gateway.sessions import Exchange, GatewaySession
from training_gym.spec.errors import GymError

BATCH_BYTES = 16_384
"""Events go out together up to so many bytes: the answer is whole when its stream begins."""


async def answer(
    connection: Connection,
    session: GatewaySession,
    dialect: Dialect,
    asked: Asked,
    digest: bytes,
) -> None:
    """Sample and send.

    A client that goes leaves its sampling to whoever asks again. Raises what sampling raises, as
    long as nothing is sent.
    """
    exchange = session.exchange(
        asked,
        digest,
        key=connection.header("idempotency-key") or None,
        retry=connection.header("x-stainless-retry-count").strip("0") != "",
    )
    exchange.listeners += 1
    try:
        if asked.stream:
            await _stream(connection, session, dialect, asked, exchange)
        else:
            await connection.until(exchange.task)
            if exchange.task.done():
                made = dialect.answer(asked, exchange.task.result(), exchange.answer_id)
                await connection.send_json(200, made)
        if exchange.task.done() and not connection.gone:
            exchange.deliver()
    finally:
        session.leave(exchange)


async def _stream(
    connection: Connection,
    session: GatewaySession,
    dialect: Dialect,
    asked: Asked,
    exchange: Exchange,
) -> None:
    """Send the answer as events, and signs of life until it is there."""
    leaving = asyncio.ensure_future(connection.disconnected())
    try:
        await _sampled(connection, session, exchange, leaving)
        await _send_events(connection, dialect, asked, exchange)
    finally:
        leaving.cancel()


async def _sampled(
    connection: Connection,
    session: GatewaySession,
    exchange: Exchange,
    leaving: asyncio.Future[None],
) -> None:
    """Return once the answer is there or the client has gone; until then show signs of life."""
    limits = session.limits
    both = (exchange.task, leaving)
    wait_s = limits.patience_s
    while not exchange.task.done() and not connection.gone:
        await asyncio.wait(both, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        if exchange.task.done() or connection.gone:
            break
        if not connection.started:
            await connection.start_stream()
        await connection.send_events(b": still sampling\n\n")
        wait_s = limits.ping_every_s


async def _send_events(
    connection: Connection, dialect: Dialect, asked: Asked, exchange: Exchange
) -> None:
    """Send the answer as events, several at a time."""
    if connection.gone:
        return
    if connection.started and (error := _error(exchange)) is not None:
        await connection.send_events(_error_event(dialect, error), more=False)
        return
    samples = exchange.task.result()
    if not connection.started:
        await connection.start_stream()
    batch = bytearray()
    for event in dialect.events(asked, samples, exchange.answer_id):
        batch += _line(event)
        if len(batch) > BATCH_BYTES:
            await connection.send_events(bytes(batch))
            batch.clear()
            if connection.gone:
                return
    await connection.send_events(bytes(batch), more=False)


def _error(exchange: Exchange) -> BaseException | None:
    with contextlib.suppress(asyncio.CancelledError):
        return exchange.task.exception()
    return asyncio.CancelledError()


def _error_event(dialect: Dialect, error: BaseException) -> bytes:
    text = error.message if isinstance(error, GymError) else type(error).__name__
    body = {"type": "api_error", "message": text}
    if dialect.named_errors:
        return _line(("error", {"type": "error", "error": body}))
    return _line((None, {"error": {**body, "code": "sampling_failed", "param": None}}))


def _line(event: Event) -> bytes:
    name, data = event
    head = f"event: {name}\n".encode() if name else b""
    body = data.encode() if isinstance(data, str) else json_bytes(data)
    return head + b"data: " + body + b"\n\n"
