import asyncio
import contextlib
from dataclasses import dataclass, field

import pytest

from training_gym.rollouts.gateway.gateway import Gateway
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.sampling import SampleKey, Sampling
from training_gym.testing.scripted_sampler import ScriptedSampler

OWN = Sampling(max_tokens=256)


@dataclass
class Served:
    """A gateway with one session over a scripted sampler."""

    gateway: Gateway
    sampler: ScriptedSampler
    record: TokenRecord
    policy: SampledPolicy
    session: object
    clients: list = field(default_factory=list)


def seat(codec, sampler, name="episode"):
    """A recorded policy of its own."""
    record = TokenRecord(codec)
    key = SampleKey(seed=0, task=name)
    return record, SampledPolicy(sampler, codec, record, key, OWN, session=name)


@pytest.fixture
def serve(codec):
    """`async with serve(script) as served`: the scripted answers, over HTTP."""

    @contextlib.asynccontextmanager
    async def serving(script, *, limits=None, **options):
        sampler = ScriptedSampler(codec, script)
        async with await Gateway.start(limits=limits) as gateway:
            record, policy = seat(codec, sampler)
            options = {"sampling": OWN, **options}
            session = gateway.open(policy, name="episode", **options)
            served = Served(gateway, sampler, record, policy, session)
            try:
                yield served
            finally:
                for client in served.clients:
                    await client.close()
            assert gateway.application.faults == 0

    return serving


@pytest.fixture
def play():
    """Run a coroutine with a limit, so that a hang is a failure and not a timeout of the suite."""
    return lambda work: asyncio.run(asyncio.wait_for(work, 60))
