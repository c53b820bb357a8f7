"""Models that stay as they are: drawn in turns with the policy, so that every bit repeats."""

import asyncio
import random

import pytest

from training_gym.engines.local.companions import frozen
from training_gym.engines.local.fixed_models import LocalFixedModels
from training_gym.engines.local.players import local_table
from training_gym.engines.local.sampler import LocalSampler
from training_gym.models.weights.tiny import tiny_model
from training_gym.rollouts.attempts import Attempt
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.errors import EngineError
from training_gym.spec.forms import AnswerForm
from training_gym.spec.messages import user
from training_gym.spec.recipe import LocalEngine, Recipe
from training_gym.spec.sampling import Sampling
from training_gym.spec.tasks import Task

SHORT = Sampling(max_tokens=8)


def fixed_models(network, compute, folder, **options):
    return LocalFixedModels(
        lambda name: folder,
        lambda path: frozen(path, network),
        compute,
        sampling=SHORT,
        seed=3,
        slots=3,
        max_sequence_tokens=200,
        **options,
    )


def play(network, codec, compute, folder, delays):
    """Six dialogues of policy and fixed model, each slow in its own way; all that was said."""
    choose = random.Random(delays)

    async def dialogue(number, sampler, fixed):
        attempt = Attempt(
            Task(id=f"{number}", prompt="x", split_key="x"), 0, 0, "train", f"g{number}"
        )
        key = attempt.key(3)
        own = SampledPolicy(sampler, codec, TokenRecord(codec), key, SHORT, session=attempt.id)
        other = fixed.policy("other", attempt)
        said = []
        async with sampler.presence(attempt.id):
            for _ in range(2):
                await asyncio.sleep(choose.random() * 0.02)
                said.append((await own.sample([user(f"{number}?")])).completion)
                await asyncio.sleep(choose.random() * 0.02)
                said.append(await other.chat([user(f"{number}! {'x' * number}")]))
        return said

    async def go():
        sampler = LocalSampler(network, codec, compute, slots=3, max_sequence_tokens=200)
        fixed = fixed_models(network, compute, folder, attendance=sampler.attendance)
        said = await asyncio.gather(*(dialogue(n, sampler, fixed) for n in range(6)))
        (other, _) = fixed._loaded["other"]
        steps = sampler.statistics.steps, other.statistics.steps
        prefilled = sampler.statistics.prefilled_tokens, other.statistics.prefilled_tokens
        await sampler.forget()
        assert not any(slot.tokens for slot in other._rows.table.slots)
        await fixed.close()
        await sampler.close()
        return said, steps, prefilled

    return asyncio.run(asyncio.wait_for(go(), 60))


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("other") / "llama", "llama", seed=5)


def test_the_clock_decides_nothing(network, codec, compute, other_folder):
    first = play(network, codec, compute, other_folder, delays=1)
    assert play(network, codec, compute, other_folder, delays=2) == first
    assert play(network, codec, compute, other_folder, delays=3) == first


def test_who_leaves_holds_nobody_up(network, codec, compute, other_folder):
    """An episode is cancelled while it waits for the fixed model; the others go on."""

    async def go():
        sampler = LocalSampler(network, codec, compute, slots=3, max_sequence_tokens=200)
        fixed = fixed_models(network, compute, other_folder, attendance=sampler.attendance)

        async def ask(number, long):
            attempt = Attempt(
                Task(id=f"{number}", prompt="x", split_key="x"), 0, 0, "train", f"g{number}"
            )
            sampling = Sampling(max_tokens=150 if long else 4)
            async with sampler.presence(attempt.id):
                return await fixed.policy("other", attempt).chat([user("?")], sampling=sampling)

        waiting = [asyncio.create_task(ask(n, long=n == 0)) for n in range(3)]
        await asyncio.wait(waiting[1:], timeout=30)
        waiting[0].cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        await fixed.close()
        await sampler.close()
        return found

    found = asyncio.run(asyncio.wait_for(go(), 60))
    assert isinstance(found[0], asyncio.CancelledError)
    assert all(message.role == "assistant" for message in found[1:])


def test_where_its_turns_cannot_be_kept_it_is_refused(network, compute, other_folder):
    fixed = fixed_models(network, compute, other_folder, refused="several processes")
    attempt = Attempt(Task(id="t", prompt="x", split_key="x"), 0, 0, "train", "g")
    with pytest.raises(EngineError, match="'other' cannot be loaded: several processes"):
        fixed.policy("other", attempt)


def test_whoever_plays_without_training_hears_that_vllm_is_left_out(other_folder):
    said = []
    engine = LocalEngine(sampler="vllm", deterministic=False, device="cpu", threads=1)

    async def go():
        table = local_table(str(other_folder), Recipe(engine=engine), slots=1, say=said.append)
        async with table as found:
            assert isinstance(found.sampler, LocalSampler)

    asyncio.run(go())
    assert any("engine.sampler is left out" in line for line in said)


def test_the_form_of_the_policys_answers_is_not_the_fixed_models(network, compute, other_folder):
    made = LocalFixedModels(
        lambda name: other_folder,
        lambda path: frozen(path, network),
        compute,
        sampling=Sampling(form=AnswerForm(content_schema="{}")),
        seed=0,
        slots=1,
        max_sequence_tokens=200,
    )
    assert made._sampling.form is None
