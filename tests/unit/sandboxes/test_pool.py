"""The warm pool on the fake provider, in simulated time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from training_gym.sandboxes.pool import PoolPolicy, SandboxPool, accelerator
from training_gym.spec.sandboxes import (
    OciImage,
    QuotaExceeded,
    RateLimited,
    Resources,
    SandboxDied,
    SandboxError,
    SandboxSpec,
    StartFailed,
    StartTimeout,
)
from training_gym.testing.fake_sandboxes import FakeProvider
from training_gym.testing.simulated_time import run_simulated

SPEC = SandboxSpec()
OTHER = SandboxSpec(resources=Resources(memory_mb=1024))
DIED = SandboxDied("gone while starting", fix="again")


@pytest.fixture
def play(tmp_path):
    """Run a story against a pool; afterwards nothing may be left at the provider."""

    def run(story, provider=None, **policy):
        provider = provider or FakeProvider(start_s=1.0)

        async def main():
            provider._clock = asyncio.get_running_loop().time
            async with SandboxPool(provider, PoolPolicy(**policy), folder=tmp_path / "l") as pool:
                result = await story(pool)
            assert not provider.alive
            assert provider.starting == 0
            assert not list((tmp_path / "l").rglob("*.jsonl")), "the journal goes with the last one"
            return result

        return run_simulated(main())

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_first_waits_for_a_start_and_the_next_finds_a_spare(play):
    async def story(pool):
        first = await pool.acquire(SPEC)
        await asyncio.sleep(2.0)
        second = await pool.acquire(SPEC)
        assert first.sandbox.id != second.sandbox.id
        return first.wait_s, second.wait_s, pool.metrics()

    first_s, second_s, metrics = play(story)
    assert (first_s, second_s) == (1.0, 0.0)
    assert (metrics.acquires, metrics.misses) == (2, 1)
    assert metrics.wait_s == 1.0
    assert metrics.blocked_s == 1.0, "alone and waiting: the accelerator had nothing to do"


def test_a_used_sandbox_is_destroyed_and_never_comes_back(play):
    async def story(pool):
        seen = []
        for _ in range(20):
            async with await pool.acquire(SPEC) as lease:
                seen.append(lease.sandbox.id)
                lease.close()
            await asyncio.sleep(0.5)
            assert seen[-1] not in pool.provider.alive
        assert len(set(seen)) == 20

    play(story)


def test_kinds_do_not_mix_but_tags_do_not_matter(play):
    async def story(pool):
        await pool.warm(SPEC, 2)
        other = await pool.acquire(OTHER)
        assert other.sandbox.spec.resources.memory_mb == 1024
        tagged = await pool.acquire(SPEC.changed(tags={"run": "x"}))
        assert tagged.wait_s == 0.0

    play(story)


def test_warm_fills_before_a_burst(play):
    async def story(pool):
        await pool.warm(SPEC, 50)
        leases = await asyncio.gather(*(pool.acquire(SPEC) for _ in range(50)))
        assert {lease.wait_s for lease in leases} == {0.0}
        assert len({lease.sandbox.id for lease in leases}) == 50

    play(story)


def test_infrastructure_failures_are_retried_out_of_sight(play):
    provider = FakeProvider(start_s=0.1, failures=[DIED, StartTimeout("slow", fix="again")])

    async def story(pool):
        lease = await pool.acquire(SPEC)
        return lease.wait_s, pool.metrics().failed_starts

    wait_s, failed = play(story, provider, max_spares=0)
    assert failed == 2
    assert wait_s == pytest.approx(0.3 + 0.2), "the first retry at once, the second after a pause"


def test_after_the_last_try_the_waiter_gets_the_typed_error(play):
    provider = FakeProvider(start_s=0.1, failures=[DIED] * 3)

    async def story(pool):
        with pytest.raises(SandboxDied, match="gone while starting"):
            await pool.acquire(SPEC)
        return (await pool.acquire(SPEC)).sandbox

    assert play(story, provider, start_attempts=3, max_spares=0)


def test_a_broken_image_fails_its_waiters_at_once_and_is_not_stocked(play):
    provider = FakeProvider(
        start_s=0.1, failures=itertools.repeat(StartFailed("no such image", fix="build it"), 9)
    )

    async def story(pool):
        for _ in range(2):
            with pytest.raises(StartFailed):
                await pool.acquire(SPEC)
            await asyncio.sleep(50)
        return pool.metrics()

    metrics = play(story, provider)
    assert metrics.failed_starts <= 4, "one try an acquire and its spare, none by itself"
    assert not metrics.breaker_opened, "the provider is well"


def test_a_rate_limit_postpones_all_and_loses_nobody(play):
    provider = FakeProvider(start_s=0.1, creates_per_s=5)

    async def story(pool):
        leases = await asyncio.gather(*(pool.acquire(SPEC) for _ in range(20)))
        return len({lease.sandbox.id for lease in leases}), now(), pool.metrics()

    count, at, metrics = play(story, provider, creates_per_s=50.0)
    assert count == 20
    assert at < 12, "five a second, with pauses"
    assert metrics.failed_starts > 0, "our own limit was set too high on purpose"


def test_our_own_limit_keeps_the_provider_from_ever_refusing(play):
    provider = FakeProvider(start_s=0.1, creates_per_s=5)

    async def story(pool):
        await asyncio.gather(*(pool.acquire(SPEC) for _ in range(20)))
        return pool.metrics()

    metrics = play(story, provider)
    assert metrics.failed_starts == 0


def test_a_quota_is_waited_out_until_others_let_go(play):
    provider = FakeProvider(start_s=0.1, max_concurrent=3)

    async def story(pool):
        held = [await pool.acquire(SPEC) for _ in range(3)]
        fourth = asyncio.create_task(pool.acquire(SPEC))
        await asyncio.sleep(30)
        assert not fourth.done()
        held[0].close()
        return (await fourth).wait_s

    assert play(story, provider) == pytest.approx(30.1, abs=0.2)


def test_a_quota_nobody_told_us_of_is_waited_out_too(play):
    errors = [QuotaExceeded("account is full", fix="wait")] * 6
    provider = FakeProvider(start_s=0.1, failures=errors)

    async def story(pool):
        return (await pool.acquire(SPEC)).wait_s

    assert 5 < play(story, provider, max_spares=0) < 20


def test_spares_of_one_kind_make_room_for_the_need_of_another(play):
    provider = FakeProvider(start_s=0.1, max_concurrent=4)

    async def story(pool):
        await pool.warm(SPEC, 4)
        await pool.warm(SPEC, 0)
        lease = await pool.acquire(OTHER)
        return lease.wait_s, len(provider.alive)

    wait_s, alive = play(story, provider)
    assert wait_s < 1.0
    assert alive <= 4


def test_waiting_ends_with_what_is_known(play):
    async def story(pool):
        with pytest.raises(StartTimeout, match="no sandbox within 5 s: 0 more waiting, 1 starting"):
            await pool.acquire(SPEC, timeout_s=5)

    play(story, FakeProvider(start_s=50.0), max_spares=0)


def test_a_waiter_that_leaves_in_the_moment_of_delivery_loses_nothing(play):
    async def story(pool):
        waiting = asyncio.create_task(pool.acquire(SPEC))
        await asyncio.sleep(0.5)
        (shelf,) = pool.shelves
        put = shelf.put

        def put_and_cancel(started, at):
            put(started, at)
            waiting.cancel()

        shelf.put = put_and_cancel
        with pytest.raises(asyncio.CancelledError):
            await waiting
        lease = await pool.acquire(SPEC)
        return lease.wait_s

    assert play(story) == 0.0


def test_dead_spares_are_found_before_they_are_handed_out(play):
    async def story(pool):
        await pool.warm(SPEC, 4)
        for sandbox in list(pool.provider.alive.values())[:3]:
            sandbox.die()
        await asyncio.sleep(40)
        lease = await pool.acquire(SPEC)
        await lease.sandbox.read_file("x") if "x" in lease.sandbox.files else None
        assert lease.sandbox.id in pool.provider.alive
        return pool.metrics().dead_spares

    assert play(story, stale_after_s=60.0) == 3


def test_a_stale_spare_is_asked_on_the_spot(play):
    async def story(pool):
        await pool.warm(SPEC, 1)
        (sandbox,) = pool.provider.alive.values()
        sandbox.die()
        await asyncio.sleep(10)
        lease = await pool.acquire(SPEC)
        assert lease.sandbox.id in pool.provider.alive

    play(story, stale_after_s=5.0, check_every_s=1000.0)


def test_old_spares_are_renewed(play):
    async def story(pool):
        await pool.warm(SPEC, 2)
        before = set(pool.provider.alive)
        await asyncio.sleep(120)
        assert not before & set(pool.provider.alive)
        metrics = pool.metrics()
        assert metrics.ready == 2
        return metrics.expired

    assert play(story, spare_ttl_s=100.0) == 2


def test_a_kind_that_is_no_longer_used_keeps_nothing(play):
    async def story(pool):
        for _ in range(40):
            (await pool.acquire(SPEC)).close()
            await asyncio.sleep(0.2)
        assert pool.metrics().ready > 0
        await asyncio.sleep(500)
        return pool.metrics()

    metrics = play(story)
    assert (metrics.ready, metrics.target) == (0, 0)


def test_a_slow_start_is_overtaken_by_a_second_one(play):
    times = itertools.chain([1.0] * 40, [60.0], itertools.repeat(1.0))
    provider = FakeProvider(start_s=lambda: next(times))

    async def story(pool):
        for _ in range(38):
            (await pool.acquire(SPEC)).close()
        waits = []
        for _ in range(6):
            async with await pool.acquire(SPEC) as lease:
                waits.append(lease.wait_s)
        return max(waits), pool.metrics().hedged_starts

    longest, hedged = play(story, provider, max_spares=0)
    assert longest <= 2.1
    assert hedged == 1


def test_the_breaker_leaves_a_failing_provider_alone_and_comes_back(play):
    provider = FakeProvider(start_s=0.01, failures=[DIED] * 14)

    async def story(pool):
        lease = await pool.acquire(SPEC)
        return lease.wait_s, pool.metrics()

    wait_s, metrics = play(story, provider, start_attempts=100, backoff_s=0.001, max_spares=0)
    assert metrics.breaker_opened == 1
    assert not metrics.breaker_open
    assert metrics.failed_starts == 14
    assert wait_s > 5 + 10, "two pauses, the second twice the first"


def test_blocked_time_is_exact_when_the_accelerator_tells(play):
    async def story(pool):
        pool.accelerator(busy=True)
        waiting = asyncio.create_task(pool.acquire(SPEC))
        await asyncio.sleep(4.0)
        pool.accelerator(busy=False)
        await waiting
        await asyncio.sleep(3.0)
        return pool.metrics().blocked_s

    assert play(story, FakeProvider(start_s=10.0)) == pytest.approx(6.0)


def test_dead_rollouts_are_replaced_from_the_spares(play):
    async def story(pool):
        await pool.warm(SPEC, 3)
        lease = await pool.acquire(SPEC)
        lease.sandbox.die()
        fresh = await lease.replace()
        assert fresh.wait_s == 0.0
        assert fresh.sandbox.id in pool.provider.alive
        return pool.metrics().replacements

    assert play(story) == 1


def test_predicted_and_actual_outstanding_starts_agree(play):
    async def story(pool):
        for _ in range(1200):
            (await pool.acquire(SPEC)).close()
            await asyncio.sleep(0.1)
        return pool.metrics()

    metrics = play(story, FakeProvider(start_s=2.0), hedge=False)
    assert metrics.outstanding_mean == pytest.approx(20, rel=0.1)  # 10/s for 2 s
    assert metrics.outstanding_predicted == pytest.approx(20, rel=0.25)
    assert metrics.idle_sandbox_s > 0


def test_a_create_limit_that_cannot_keep_up_is_said_so(play):
    async def story(pool):
        tasks = []
        for _ in range(100):
            tasks.append(asyncio.create_task(pool.acquire(SPEC)))
            await asyncio.sleep(0.1)
        metrics = pool.metrics()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return metrics

    metrics = play(story, FakeProvider(start_s=0.5, creates_per_s=4))
    assert not metrics.sustainable
    assert metrics.creates_needed_per_s == pytest.approx(10, rel=0.4)


def test_closing_tells_the_waiters_and_ends_the_leases(play):
    async def story(pool):
        held = await pool.acquire(SPEC)
        waiting = asyncio.create_task(pool.acquire(OTHER))
        await asyncio.sleep(0.2)
        assert await pool.close() == 0
        assert held.sandbox.id not in pool.provider.alive
        with pytest.raises(SandboxError, match="closed"):
            await waiting
        with pytest.raises(SandboxError, match="closed"):
            await pool.acquire(SPEC)
        held.close()

    play(story)


def test_what_could_not_be_destroyed_is_retried(play):
    async def story(pool):
        lease = await pool.acquire(SPEC)
        sandbox, destroy, tries = lease.sandbox, lease.sandbox.destroy, []

        async def flaky():
            tries.append(1)
            if len(tries) < 4:
                raise RateLimited("slow down", fix="wait")
            await destroy()

        sandbox.destroy = flaky
        lease.close()
        await asyncio.sleep(5)
        assert len(tries) == 4
        assert pool.metrics().undestroyed == 0

    play(story)


class Registry(FakeProvider):
    """Knows that two of its images are one."""

    asked = 0

    async def image_digest(self, image):
        self.asked += 1
        return {"a:1": "x", "b:1": "x", "c:1": "y"}[image.reference]


def test_one_image_under_two_names_is_one_kind(play):
    provider = Registry(start_s=1.0)
    first, same, other = (
        SandboxSpec(image=OciImage(reference=name)) for name in ("a:1", "b:1", "c:1")
    )

    async def story(pool):
        await pool.warm(first, 2)
        waits = []
        for spec in (same, first, other, same):
            async with await pool.acquire(spec) as lease:
                waits.append(lease.missed)
            await asyncio.sleep(2.0)
        return waits

    assert play(story, provider) == [False, False, True, False]
    assert provider.asked == 3, "once a name"


def test_who_trains_tells_all_pools_of_the_process(play):
    async def story(pool):
        accelerator.tell(busy=True)
        lease = await pool.acquire(SPEC)
        accelerator.tell(busy=False)
        lease.close()
        await pool.acquire(OTHER)
        return pool.metrics().blocked_s

    assert play(story) == 1.0, "only the second second"
    accelerator.tell(busy=True)  # nobody is there to hear
    accelerator.fall_silent()
