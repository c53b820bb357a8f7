"""Episodes of several turns on the real sampler: what is computed again, and fixed models."""

import asyncio
import itertools

import pytest

from training_gym.engines.local.fixed_models import LocalFixedModels
from training_gym.engines.local.sampler import LocalSampler
from training_gym.environments.dialogue import UserSimulation
from training_gym.environments.turn_based import Turn, TurnBased
from training_gym.rollouts.attempts import Attempt, Limits
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.rollouts.services import Services
from training_gym.spec.episodes import Counters
from training_gym.spec.errors import EngineError
from training_gym.spec.messages import user
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task

TASK = Task(id="t", prompt=(user("Say something, then more of it."),), split_key="t")


class Chatter(TurnBased):
    """Four turns of small talk."""

    max_turns = 4

    def reset(self, task, ctx):
        return {}, ""

    def step(self, state, text, ctx):
        return Turn(f"And {ctx.rng.randint(100, 999)}?", reward=1.0)


class Watching(LocalSampler):
    """A sampler that keeps what it was asked and what it computed for it.

    Random weights hardly ever stop, so a full answer's last token, which has not gone through the
    network yet, becomes the stop token.
    """

    seen = ()

    async def generate(self, prompt, sampling, key, **options):
        completion = await super().generate(prompt, sampling, key, **options)
        ids = (*completion.token_ids[:-1], min(self._codec.stop_ids))
        completion = completion.changed(token_ids=ids, stop_reason="stop")
        self.seen = (*self.seen, (key, prompt.token_ids, completion))
        return completion


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_later_turn_prefills_its_new_tokens_only(network, codec, compute, deterministic):
    sampler = Watching(
        network, codec, compute, slots=8, max_sequence_tokens=600, deterministic=deterministic
    )
    runner = EpisodeRunner(
        SampledPlayers(sampler, codec, seed=3),
        Chatter(),
        seed=3,
        limits=Limits(8, 60.0),
        presence=sampler.presence,
    )
    attempts = [Attempt(TASK, member, 0, "train", "g") for member in range(4)]

    async def play():
        episodes = await runner.play_group(attempts, Sampling(max_tokens=5), Counters())
        await sampler.close()
        return episodes

    episodes = asyncio.run(play())
    assert [len(episode.trajectories) for episode in episodes] == [1] * 4
    opening = len(sampler.seen[0][1])
    prefilled = [call[2].prefilled for call in sampler.seen if call[0].turn == 0]
    assert sorted(prefilled) == [1, 1, 1, opening]  # a group's prompt is computed once
    for member in range(4):
        turns = [call for call in sampler.seen if call[0].member == member]
        assert len(turns) == 4
        for (_, before, answer), (_, after, later) in itertools.pairwise(turns):
            known = (*before, *answer.token_ids)
            assert after[: len(known)] == known
            # The stop token was sampled, but has not gone through the network.
            assert later.prefilled == len(after) - len(known) + 1


def test_a_fixed_model_plays_the_user_and_is_not_trained_on(network, codec, compute, tiny_folder):
    sampler = Watching(network, codec, compute, slots=4, max_sequence_tokens=600)
    loaded = []

    def load(folder):
        loaded.append(folder)
        return network

    async def play():
        fixed = LocalFixedModels(
            lambda name: tiny_folder,
            load,
            compute,
            sampling=Sampling(max_tokens=5),
            seed=3,
            slots=4,
            max_sequence_tokens=600,
        )
        runner = EpisodeRunner(
            SampledPlayers(sampler, codec, seed=3),
            UserSimulation(user="tiny", max_turns=2),
            seed=3,
            limits=Limits(8, 60.0),
            presence=sampler.presence,
            services=(services := Services(fixed=fixed)),
        )
        attempts = [Attempt(TASK, member, 0, "train", "g") for member in range(2)]
        episodes = await runner.play_group(attempts, Sampling(max_tokens=5), Counters())
        await services.close()
        await sampler.close()
        return episodes

    episodes = asyncio.run(play())
    assert loaded == [tiny_folder]
    for episode in episodes:
        assert episode.outcome.status == "truncated"
        assert len(episode.outcome.artifacts["user"]) == 2
        assert {trajectory.agent for trajectory in episode.trajectories} == {"policy"}
        assert episode.num_tokens == 2 * 5
    assert episodes[0].outcome.artifacts != episodes[1].outcome.artifacts


def test_beside_a_sampler_alone_only_addresses_are_known(network, codec, compute):
    sampler = LocalSampler(network, codec, compute, slots=1, max_sequence_tokens=200)
    runner = EpisodeRunner(
        SampledPlayers(sampler, codec, seed=3),
        UserSimulation(user="tiny"),
        seed=3,
        limits=Limits(8, 60.0),
    )
    attempt = Attempt(TASK, 0, 0, "train", "g")
    with pytest.raises(EngineError, match="no model 'tiny' can be loaded"):
        asyncio.run(runner.play(attempt, Sampling(max_tokens=5), Counters()))
