"""While environments wait, the sampler works for other episodes: on a simulated clock."""

import asyncio

import pytest

from training_gym.environments.turn_based import Turn, TurnBased
from training_gym.rollouts.attempts import Attempt, Limits
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.spec.sampling import Sampling
from training_gym.testing.scripted_sampler import ScriptedSampler
from training_gym.testing.simulated_time import run_simulated

GENERATION_S, ENVIRONMENT_S, TURNS = 1.0, 10.0, 24


class Slow(TurnBased):
    """Every action takes a while to show its effect."""

    max_turns = TURNS

    def reset(self, task, ctx):
        return {"turn": 0}, ""

    async def step(self, state, text, ctx):
        await asyncio.sleep(ENVIRONMENT_S)
        state["turn"] += 1
        return Turn("and then?", done=state["turn"] == TURNS)


class OneAtATime(ScriptedSampler):
    """A sampler that is busy for a second with each answer, and with one answer at a time."""

    busy_s = 0.0

    def __post_init__(self):
        super().__post_init__()
        self.turn = asyncio.Lock()

    async def generate(self, prompt, sampling, key, **options):
        async with self.turn:
            await asyncio.sleep(GENERATION_S)
            self.busy_s += GENERATION_S
            return await super().generate(prompt, sampling, key, **options)


def busy_share(codec, task, counters, episodes):
    """Share of the time that the sampler worked, with so many episodes in flight."""

    async def play():
        sampler = OneAtATime(codec, lambda prompt, key: "go")
        runner = EpisodeRunner(
            SampledPlayers(sampler, codec, seed=0),
            Slow(),
            seed=0,
            limits=Limits(TURNS, 1e9),
        )
        attempts = [Attempt(task, member, 0, "train", "g") for member in range(episodes)]
        played = await runner.play_group(attempts, Sampling(max_tokens=4), counters)
        await runner.close()
        assert all(episode.outcome.status == "finished" for episode in played)
        return sampler.busy_s / asyncio.get_running_loop().time()

    return run_simulated(play())


@pytest.mark.parametrize("episodes", [1, 5, 8, 11, 16])
def test_the_sampler_is_as_busy_as_waiting_allows(codec, task, counters, episodes):
    most = min(1.0, episodes * GENERATION_S / (GENERATION_S + ENVIRONMENT_S))
    assert busy_share(codec, task, counters, episodes) == pytest.approx(most, rel=0.05)


def test_with_episodes_enough_it_hardly_ever_waits(codec, task, counters):
    assert busy_share(codec, task, counters, 14) > 0.9
