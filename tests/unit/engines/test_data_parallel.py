"""Two real processes over gloo against one, on the same batch."""

import asyncio

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.engines.test_trainer import batch, recipe

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.core import Origin
from training_gym.engines.local.packing import Row
from training_gym.engines.local.parallel.replicas import Alone, share
from training_gym.engines.local.parallel.spread import SpreadSampler
from training_gym.engines.local.parallel.team import Team
from training_gym.models import architecture
from training_gym.planning import make_plan, origins_of
from training_gym.spec.algorithms import GRPO, PPO
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.errors import EngineError
from training_gym.spec.plan import Machine
from training_gym.spec.recipe import LocalEngine, Lora
from training_gym.spec.run import RunSpec
from training_gym.spec.sampling import Prompt, SampleKey, Sampling, WeightUpdate

MACHINE = Machine(cpu_cores=4, memory_gib=8)


def origin(folder, made, processes):
    engine = LocalEngine(device="cpu", threads=1, token_budget=64, slots=4, data_parallel=processes)
    run = RunSpec(
        model=str(folder),
        dataset="rows.jsonl",
        reward="my:reward",
        recipe=made.changed(engine=engine),
    )
    plan = make_plan(run, architecture.read(folder), MACHINE, origins_of(run))
    return Origin(plan, folder)


class Played:
    """A team that has loaded, with its parts."""

    def __init__(self, folder, made, processes):
        self.team = Team(origin(folder, made, processes))
        self.core = self.team.load()
        self.trainer = self.team.trainer(self.core)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.team.close()


def weights(played, folder):
    played.trainer.export(str(folder))
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def first_row(given):
    return given.changed(
        trajectories=given.trajectories[:1], advantages=given.advantages[:1], weights=(1.0,)
    )


def equal_metrics(found, expected):
    for ours, wanted in zip(found, expected, strict=True):
        assert ours.keys() == wanted.keys()
        for name in wanted.keys() - {"train_seconds", "train_tokens"}:
            assert ours[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-6), name


def equal_weights(spread, alone):
    assert spread.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(spread[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.slow
def test_two_processes_with_adapter_and_value_head(tiny_folder, tmp_path):
    made = recipe(PPO(), adapter=Lora(rank=4))
    with Played(tiny_folder, made, 1) as one:
        given = batch(one.core.network, groups=((7, 5, 30, 20, 9), (4, 9)))
        columns = one.trainer.annotate(given.trajectories)
        given = given.changed(columns=columns | {"returns": given.advantages})
        expected = [one.trainer.step(given), one.trainer.step(given)]
        alone = weights(one, tmp_path / "one")
    with Played(tiny_folder, made, 2) as two:
        torch.testing.assert_close(two.trainer.annotate(given.trajectories), columns)
        equal_metrics([two.trainer.step(given), two.trainer.step(given)], expected)
        equal_weights(weights(two, tmp_path / "two"), alone)


@pytest.fixture(scope="module")
def two(tiny_folder):
    """Two processes, which take seconds to start; the last of their tests kills one."""
    with Played(tiny_folder, recipe(GRPO()), 2) as played:
        yield played


@pytest.mark.slow
def test_two_processes_make_the_updates_of_one(tiny_folder, tmp_path, two):
    """Also where nothing is left for the second; and one goes on from what two have saved."""
    with Played(tiny_folder, recipe(GRPO()), 1) as one:
        given = batch(one.core.network)
        batches = [given, first_row(given)]
        expected = [one.trainer.step(each) for each in batches]
        equal_metrics([two.trainer.step(each) for each in batches], expected)
        equal_weights(weights(two, tmp_path / "two"), weights(one, tmp_path / "one"))
        (tmp_path / "state").mkdir()
        two.trainer.save(str(tmp_path / "state"))
        further = two.trainer.step(given)
        one.trainer.load(str(tmp_path / "state"))
        equal_metrics([further], [one.trainer.step(given)])
        equal_weights(weights(two, tmp_path / "further"), weights(one, tmp_path / "resumed"))


def asked(number):
    """Prompts of one group, and the key of its member."""
    prompt = Prompt(token_ids=tuple(range(40, 60)))
    return prompt, Sampling(max_tokens=12), SampleKey(seed=1, task="t", member=number)


async def drawn(sampler, numbers):
    """Episodes in play at once, each asking twice; their answers."""

    async def episode(number):
        prompt, sampling, key = asked(number)
        async with sampler.presence(f"s{number}"):
            first = await sampler.generate(prompt, sampling, key, session=f"s{number}")
            longer = Prompt(token_ids=(*prompt.token_ids, *first.token_ids, 61))
            second = await sampler.generate(
                longer, sampling, key.changed(turn=1), session=f"s{number}"
            )
            return first, second

    return await asyncio.gather(*(episode(number) for number in numbers))


@pytest.fixture
def own(two):
    compute = Compute()
    yield two.core.sampler(compute)
    compute.close()


@pytest.mark.slow
def test_sessions_are_spread(two, own):
    """Each answer is what one process would have drawn; the whole is repeated bit for bit."""

    async def go():
        sampler = SpreadSampler(own, two.team.ranks)
        found = await drawn(sampler, range(5))
        alone = await drawn(own, range(5))
        await sampler.forget()
        again = await drawn(sampler, range(5))
        await sampler.update_weights(WeightUpdate(version=3, base_version=0))
        updated = await drawn(sampler, range(5))
        await sampler.close()
        return found, alone, again, updated

    found, alone, again, updated = asyncio.run(go())
    assert found == again
    answer = found[0][0]
    whole = (*asked(0)[0].token_ids, *answer.token_ids)
    (scores,) = two.trainer.score([whole])  # by the weights as they are after the updates
    assert answer.logprobs == pytest.approx(scores[-len(answer.logprobs) :], abs=1e-4)
    for ours, theirs in zip(found, alone, strict=True):
        for each, other in zip(ours, theirs, strict=True):
            assert each.token_ids == other.token_ids
            assert each.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert {version for pair in updated for each in pair for version in each.versions} == {3}


@pytest.mark.slow
def test_a_death_is_told(two, own):
    """In sampling and, where the others wait for it in a sum, in training."""

    async def go():
        sampler = SpreadSampler(own, two.team.ranks)
        two.team.ranks[0]._process.kill()
        with pytest.raises(EngineError, match=r"process 1 of engine\.data_parallel ended"):
            await drawn(sampler, range(5))
        await sampler.close()

    given = batch(two.core.network)
    asyncio.run(go())
    with pytest.raises(EngineError, match=r"process 1 of engine\.data_parallel ended"):
        two.trainer.step(given)


def rows(sizes):
    """Groups of answers, each group behind a prompt of its own."""
    made = []
    for number, (prompt, *answers) in enumerate(sizes):
        for length in answers:
            ids = (number,) * (prompt + length)
            trajectory = Trajectory(
                token_ids=ids,
                flags=(PROMPT,) * prompt + (SAMPLED,) * length,
                logprobs=(0.0,) * len(ids),
                versions=(0,) * len(ids),
                prompt_length=prompt,
            )
            made.append(Row(trajectory, ids, ids))
    return made


class Member(Alone):
    def __init__(self, rank, world):
        self.rank, self.world = rank, world


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_every_row_has_one_process_and_the_load_is_even(world, together):
    given = rows([(9, 4, 4, 4, 4), (3, 20, 2, 8, 8), (5, 5, 5), (2, 30, 1)])
    shares = [share(given, Member(rank, world), together=together) for rank in range(world)]
    assert sorted(number for mine in shares for number in mine) == list(range(len(given)))
    for mine in shares:
        units = [number // together for number in mine]
        assert all(units.count(unit) == together for unit in units)
    tokens = [sum(len(given[n].trajectory.token_ids) for n in mine) for mine in shares]
    largest = max(
        sum(len(row.trajectory.token_ids) for row in given[start : start + together])
        for start in range(0, len(given), together)
    )
    assert max(tokens) <= sum(tokens) / world + largest
