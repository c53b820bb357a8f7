"""One episode's session: its policy, its secret, and what it has answered."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from training_gym.rollouts.gateway.asked import Asked
from training_gym.rollouts.gateway.limits import GatewayLimits
from training_gym.rollouts.gateway.refusals import Refused, over
from training_gym.rollouts.policy import Sample, SamplingPolicy
from training_gym.spec.episodes import Score
from training_gym.spec.errors import FormError
from training_gym.spec.messages import Message
from training_gym.spec.sampling import Sampling


@dataclass(eq=False)
class Exchange:
    """A request being answered, or answered: its task outlives connections that break."""

    digest: bytes
    answer_id: str
    task: asyncio.Task[list[Sample]]
    listeners: int = 0
    """Connections that wait for it."""
    delivered: bool = False

    def deliver(self) -> None:
        """Somebody got the whole answer: from now on it counts."""
        self.delivered = True
        for sample in self.task.result():
            if sample.node is not None:
                sample.node.delivered = True


class Turnstile:
    """Lets so many sample at once; the others wait in order, and not too many of them."""

    def __init__(self, limits: GatewayLimits) -> None:
        """Nobody is there yet."""
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.max_sampling)
        self.waiting = 0

    def check(self) -> None:
        """Raise `Refused` where too many wait already."""
        if self._slots.locked() and self.waiting >= self._limits.max_waiting:
            raise _busy(f"{self.waiting} requests wait already")

    async def __aenter__(self) -> None:
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()


@dataclass(eq=False)
class GatewaySession:
    """What an episode's harness talks to. Made by `Gateway.open`."""

    id: str
    url: str
    """Base URL of the session, without the dialect's own part."""
    private_url: str
    """The same with the secret in it, for harnesses that can set no key."""
    key: str
    policy: SamplingPolicy
    sampling: Sampling
    limits: GatewayLimits
    turnstile: Turnstile
    pinned: bool = False
    tolerated: frozenset[str] = frozenset()
    forget: Callable[[GatewaySession], None] = lambda _: None
    score: Score | None = None
    """The reward that the harness has posted."""
    messages: tuple[Message, ...] = ()
    """The latest conversation, its answer included."""
    ended_by: BaseException | None = None
    """A limit of the episode that a request ran into."""
    failure: Exception | None = None
    """What the policy raised last."""
    requests: int = 0
    """Requests answered, those from memory included."""
    repeats: int = 0
    """Of these, retries that were answered from memory."""
    _exchanges: OrderedDict[str, Exchange] = field(default_factory=OrderedDict)
    _latest: dict[bytes, Exchange] = field(default_factory=dict)
    """Of these, the last one for each body."""
    _conversations: OrderedDict[str, tuple[Message, ...]] = field(default_factory=OrderedDict)
    _count: int = 0
    _under_way: int = 0
    _closed: bool = False

    @property
    def openai_url(self) -> str:
        """For clients of OpenAI: `OpenAI(base_url=…, api_key=session.key)`."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """For clients of Anthropic: `Anthropic(base_url=…, api_key=session.key)`."""
        return self.url

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find their server and key."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": self.key,
        }

    def exchange(self, asked: Asked, digest: bytes, *, key: str | None, retry: bool) -> Exchange:
        """The exchange of a request: the one under way or remembered if this is a retry of it.

        A retry has the idempotency key of an earlier request, or the same body and either says
        that it is one or comes after a request whose client has gone without an answer. The same
        body is no retry otherwise: harnesses ask twice for two answers.

        Raises `Refused` where there is too much to do, or a key comes with another body.
        """
        if self._closed or self.ended_by is not None:
            raise over(str(self.ended_by or "its session is closed"))
        if self.pinned and asked.draw.seed is not None:
            raise _seeded(asked.draw.seed)
        known = self._known(digest, key, retry=retry)
        self.requests += 1
        if known is not None:
            self.repeats += 1
            return known
        if self._under_way >= self.limits.max_in_session:
            raise _busy(f"{self._under_way} requests of this session are under way")
        self.turnstile.check()
        self._count += 1
        answer_id = f"{self.id}-{self._count}"
        task = asyncio.create_task(self._sample(asked, answer_id))
        self._under_way += 1
        task.add_done_callback(self._done)
        made = Exchange(digest, answer_id, task)
        self._exchanges[key or answer_id] = self._latest[digest] = made
        self._drop_old()
        return made

    def leave(self, exchange: Exchange) -> None:
        """A connection is gone; if it was the last, sampling ends after the grace."""
        exchange.listeners -= 1
        if exchange.listeners == 0 and not exchange.task.done():
            loop = asyncio.get_running_loop()
            loop.call_later(self.limits.retry_grace_s, _cancel_if_alone, exchange)

    def recall(self, answer_id: str) -> tuple[Message, ...]:
        """The conversation that an answer of this session ended."""
        try:
            return self._conversations[answer_id]
        except KeyError:
            raise Refused(
                f"no answer {answer_id[:60]!r} is remembered in this session",
                fix="send the whole conversation as input",
                param="previous_response_id",
            ) from None

    async def close(self) -> None:
        """Forget the key and end what is under way."""
        self._closed = True
        self.forget(self)
        tasks = [e.task for e in self._exchanges.values() if not e.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _known(self, digest: bytes, key: str | None, *, retry: bool) -> Exchange | None:
        if key is not None and key in self._exchanges:
            found = self._exchanges[key]
            if found.digest != digest:
                raise Refused(
                    f"idempotency key {key[:60]!r} came with another body before",
                    fix="take a new key for a new request",
                    status=422,
                    code="idempotency_key_reused",
                )
            return None if _failed(found) else found
        latest = self._latest.get(digest)
        if latest is None or _failed(latest):
            return None
        abandoned = not latest.delivered and latest.listeners == 0
        return latest if retry or abandoned else None

    async def _sample(self, asked: Asked, answer_id: str) -> list[Sample]:
        sampling = asked.draw.over(self.sampling, pinned=self.pinned)
        if asked.form is not None:
            sampling = sampling.changed(form=asked.form)
        seed = asked.draw.seed
        async with self.turnstile:
            try:
                if asked.count == 1:
                    samples = [await self._draw(asked, sampling, seed)]
                else:
                    seeds = (None if seed is None else seed + n for n in range(asked.count))
                    draws = (self._draw(asked, sampling, each) for each in seeds)
                    samples = list(await asyncio.gather(*draws))
            except (asyncio.CancelledError, Refused):
                raise
            except Exception as error:
                self.failure = error
                raise
            except BaseException as limit:
                # An episode's limit is no Exception, so that environments cannot swallow it.
                self.ended_by = limit
                raise over(str(limit)) from limit
        if not isinstance(asked.prompt, str):
            self.messages = (*asked.prompt, samples[0].message)
            self._conversations[answer_id] = self.messages
            if len(self._conversations) > self.limits.kept_answers:
                self._conversations.popitem(last=False)
        return samples

    async def _draw(self, asked: Asked, sampling: Sampling, seed: int | None) -> Sample:
        try:
            return await self.policy.sample(
                asked.prompt,
                tools=asked.tools,
                sampling=sampling,
                cut_stop_text=True,
                delivered=False,
                seed=seed,
            )
        except FormError as error:
            raise Refused(
                error.message,
                fix=error.fix,
                code="unsupported_value",
                param=asked.form_asked_by or None,
            ) from error

    def _done(self, task: asyncio.Task[list[Sample]]) -> None:
        self._under_way -= 1
        if not task.cancelled():
            task.exception()  # nobody may wait any more; asyncio need not report it too

    def _drop_old(self) -> None:
        """Forget the oldest answers that somebody has got, half of the limit at a time."""
        if len(self._exchanges) <= 2 * self.limits.kept_answers:
            return
        done = [name for name, e in self._exchanges.items() if e.delivered or _failed(e)]
        for name in done[: max(len(self._exchanges) - self.limits.kept_answers, 0)]:
            old = self._exchanges.pop(name)
            if self._latest.get(old.digest) is old:
                del self._latest[old.digest]


def new_key() -> str:
    """A secret of 192 bits."""
    return f"tg-{secrets.token_urlsafe(24)}"


def _failed(exchange: Exchange) -> bool:
    task = exchange.task
    return task.done() and (task.cancelled() or task.exception() is not None)


def _cancel_if_alone(exchange: Exchange) -> None:
    if exchange.listeners == 0:
        exchange.task.cancel()


def _seeded(seed: int) -> Refused:
    return Refused(
        f"parameter seed = {seed} is not supported where answers are trained on",
        fix="leave it out, since all episodes of a group would draw the same, "
        "or let the session tolerate 'seed'",
        code="unsupported_parameter",
        param="seed",
    )


def _busy(reason: str) -> Refused:
    return Refused(
        reason,
        fix="ask again in a second",
        status=429,
        code="rate_limit_exceeded",
        retry_after_s=1,
    )
