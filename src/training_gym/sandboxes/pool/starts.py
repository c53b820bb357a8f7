"""One order: from the wish for a sandbox to a living one, through limits, retries and hedges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training_gym.sandboxes.pool.breaker import Breaker
from training_gym.sandboxes.pool.disposal import Disposal, Started
from training_gym.sandboxes.pool.estimates import Durations
from training_gym.sandboxes.pool.leases import LeaseJournal
from training_gym.sandboxes.pool.permits import CreateRate, StartingPermits
from training_gym.sandboxes.pool.policy import PoolPolicy
from training_gym.spec.sandboxes import (
    QuotaExceeded,
    RateLimited,
    SandboxProvider,
    SandboxSpec,
    StartTimeout,
    disposition,
)

_HEDGE_AFTER = 0.95
_HEDGE_NEEDS = 20  # earlier starts before their quantile means something
_GRACE_S = 5.0  # beyond its own timeout, for a provider that does not keep it


@dataclass(frozen=True)
class Limits:
    """What holds over all processes of this home; None: no limit."""

    creates: CreateRate | None
    starting: StartingPermits | None

    @classmethod
    def of(
        cls, provider: str, leases: Path, policy: PoolPolicy, creates_per_s: float | None
    ) -> Limits:
        """Of a provider, in a folder beside the leases'."""
        folder = leases.with_name("limits") / provider
        creates = starting = None
        if creates_per_s is not None:
            burst, per_s = policy.create_burst, 0.98 * creates_per_s
            creates = CreateRate(folder / "creates", per_s=per_s, burst=burst)
        if policy.max_starting is not None:
            starting = StartingPermits(folder / "starting", policy.max_starting)
        return cls(creates, starting)


class Starter:
    """Starts sandboxes of one provider for one pool."""

    def __init__(
        self,
        provider: SandboxProvider,
        policy: PoolPolicy,
        journal: LeaseJournal,
        limits: Limits,
        disposal: Disposal,
        *,
        make_room: Callable[[SandboxSpec], None],
    ) -> None:
        """`make_room` is called when the provider holds no more for us."""
        self._provider = provider
        self._policy = policy
        self._journal = journal
        self._limits = limits
        self._disposal = disposal
        self._make_room = make_room
        self._losers: set[asyncio.Task[Started]] = set()
        self.breaker = Breaker(
            window=policy.breaker_window,
            failures=policy.breaker_failures,
            pause_s=policy.breaker_pause_s,
        )
        self.created = self.failed = self.hedged = 0

    async def start(self, spec: SandboxSpec, durations: Durations) -> Started:
        """A living sandbox. Raises the provider's error once its tries are used up.

        `durations`: those of earlier starts of this kind, to which this one's are added.
        Being told to come later uses up no try: whoever waits has a deadline of their own.
        """
        tries = refusals = 0
        while True:
            await self.breaker.ready()
            try:
                started = await self._attempt(spec, durations)
            except asyncio.CancelledError:
                self.breaker.abandon()
                raise
            except Exception as error:
                self.failed += 1
                meaning = disposition(error)
                if meaning.cause == "provider" and meaning.retry == "now":
                    self.breaker.record(False)
                else:
                    self.breaker.abandon()  # a refusal or a broken image says nothing of health
                tries += meaning.retry == "now"
                refusals += meaning.retry == "later"
                if meaning.retry == "never" or tries >= self._policy.start_attempts:
                    raise
                await self._pause(spec, error, refusals if meaning.retry == "later" else tries - 1)
            else:
                self.breaker.record(True)
                return started

    async def settle(self) -> None:
        """Wait for creations that were given up."""
        while self._losers:
            await asyncio.wait(self._losers)

    async def _pause(self, spec: SandboxSpec, error: Exception, number: int) -> None:
        pause_s = min(self._policy.backoff_limit_s, self._policy.backoff_s * 2.0 ** (number - 1))
        if isinstance(error, QuotaExceeded):
            self._make_room(spec)
        if isinstance(error, RateLimited) and error.retry_after_s is not None:
            pause_s = error.retry_after_s
            if self._limits.creates is not None:
                self._limits.creates.postpone(pause_s)
        if number > 0:  # the first retry that may come now comes now
            await asyncio.sleep(pause_s)

    async def _attempt(self, spec: SandboxSpec, durations: Durations) -> Started:
        if self._limits.creates is not None:
            await self._limits.creates.take()
        permit = await self._limits.starting.take() if self._limits.starting is not None else None
        racers = [self._launch(spec, durations, permit)]
        winner: asyncio.Task[Started] | None = None
        try:
            slow_s = durations.quantile(_HEDGE_AFTER, at_least=_HEDGE_NEEDS)
            if self._policy.hedge and slow_s is not None:
                # A little beyond: where all take the same time, none is slow.
                await asyncio.wait(racers, timeout=1.05 * slow_s)
                if not racers[0].done():
                    racers += self._hedge(spec, durations)
            pending = set(racers)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                winner = next((racer for racer in done if _succeeded(racer)), None)
                if winner is not None:
                    self.created += 1
                    return winner.result()
            return racers[0].result()  # raises: all have failed
        finally:
            for racer in racers:
                if racer is not winner:
                    self._give_up(racer)

    def _hedge(self, spec: SandboxSpec, durations: Durations) -> list[asyncio.Task[Started]]:
        """A second creation, if the limits have room for it at once."""
        permit = None
        if self._limits.starting is not None:
            permit = self._limits.starting.try_take()
            if permit is None:
                return []
        if self._limits.creates is not None and not self._limits.creates.try_take():
            if permit is not None and self._limits.starting is not None:
                self._limits.starting.give_back(permit)
            return []
        self.hedged += 1
        return [self._launch(spec, durations, permit)]

    def _launch(
        self, spec: SandboxSpec, durations: Durations, permit: int | None
    ) -> asyncio.Task[Started]:
        task = asyncio.create_task(self._create(spec, durations))
        starting = self._limits.starting
        if permit is not None and starting is not None:
            # Not in the task: one that is cancelled before its first step runs no `finally`.
            task.add_done_callback(lambda _: starting.give_back(permit))
        return task

    async def _create(self, spec: SandboxSpec, durations: Durations) -> Started:
        clock = asyncio.get_running_loop().time
        lease = self._journal.begin()
        tagged = spec.changed(tags={**spec.tags, **self._journal.tags(lease)})
        timeout_s = self._policy.start_timeout_s
        begin = clock()
        try:
            async with asyncio.timeout(timeout_s + _GRACE_S):
                sandbox = await self._provider.create(tagged, timeout_s=timeout_s)
        except TimeoutError:
            self._disposal.uncertain(lease)
            raise StartTimeout(
                f"{self._provider.name} gave no sandbox within {timeout_s + _GRACE_S:g} s",
                fix="raise start_timeout_s, or look at the provider's status",
            ) from None
        except asyncio.CancelledError:
            # At least so long: without it the quantile would only ever see the fast ones.
            durations.record(clock() - begin)
            self._disposal.uncertain(lease)
            raise
        except Exception:
            self._disposal.uncertain(lease)
            raise
        self._journal.created(lease, sandbox.id)
        durations.record(clock() - begin)
        return Started(sandbox, lease)

    def _give_up(self, racer: asyncio.Task[Started]) -> None:
        self._losers.add(racer)
        racer.add_done_callback(self._bury)
        racer.cancel()

    def _bury(self, racer: asyncio.Task[Started]) -> None:
        self._losers.discard(racer)
        if _succeeded(racer):
            self._disposal.discard(racer.result())


def _succeeded(task: asyncio.Task[Started]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
