"""References and teachers: the adapter off is the model beneath; another tokenizer is read anew."""

import pytest
import torch

from training_gym.engines.local.companions import (
    AdapterOff,
    load_companions,
    same_vocabulary,
    score_trajectories,
)
from training_gym.engines.local.credit import Group
from training_gym.engines.local.network import Network
from training_gym.engines.local.translation import (
    Translation,
    teacher_advantages,
    text_ends,
    translation_for,
)
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.algorithms import DPO, GRPO, Distill, FullVocabulary
from training_gym.spec.episodes import PROMPT, SAMPLED, Episode, Trajectory
from training_gym.spec.errors import EngineError
from training_gym.spec.loss_terms import LossKL
from training_gym.spec.messages import user
from training_gym.spec.recipe import Lora, Recipe
from training_gym.spec.run import RunSpec
from training_gym.spec.tasks import Task


def path(ids, prompt_length, logprob=-1.0):
    flags = (PROMPT,) * prompt_length + (SAMPLED,) * (len(ids) - prompt_length)
    return Trajectory(
        token_ids=tuple(ids),
        flags=flags,
        logprobs=tuple(logprob if flag & SAMPLED else 0.0 for flag in flags),
        versions=(0,) * len(ids),
        prompt_length=prompt_length,
    )


def scores(scorer, *paths):
    return score_trajectories(scorer, paths, temperature=1.0, token_budget=64, chunk=16)


@pytest.fixture
def adapted(tiny_folder):
    model = load_model(tiny_folder, dtype="float32", device="cpu", adapter=Lora(rank=4))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    model.eval()
    return Network(model)


@pytest.mark.parametrize("algorithm", [GRPO(kl=LossKL()), DPO()])
def test_with_an_adapter_the_reference_takes_no_memory(adapted, tiny_folder, codec, algorithm):
    recipe = Recipe(algorithm=algorithm, adapter=Lora(rank=4))
    found = load_companions(recipe, adapted, codec, start=tiny_folder).reference
    assert isinstance(found, AdapterOff)
    base = Network(load_model(tiny_folder, dtype="float32", device="cpu"))
    rows = path(range(40, 60), 5), path(range(60, 90), 5)
    for ours, expected in zip(scores(found, *rows), scores(base, *rows), strict=True):
        assert ours == pytest.approx(expected, abs=1e-5)
    assert scores(adapted, *rows)[0] != pytest.approx(scores(base, *rows)[0], abs=1e-2)
    assert all(p.requires_grad for name, p in adapted.model.named_parameters() if "lora_" in name)


def test_without_one_it_is_a_frozen_copy(network, tiny_folder, codec):
    recipe = Recipe(algorithm=GRPO(kl=LossKL()))
    found = load_companions(recipe, network, codec, start=tiny_folder).reference
    assert found.trainable() == []
    assert load_companions(Recipe(), network, codec, start=tiny_folder).reference is None


@pytest.fixture
def other(tmp_path):
    """A model that has tokens of its own."""
    return tiny_model(tmp_path / "other", seed=3, extra_tokens=("ab", "cde", "∑"))


def test_vocabularies_are_told_apart(codec, other, tiny_folder):
    assert same_vocabulary(codec, load_codec(tiny_folder))
    assert not same_vocabulary(codec, load_codec(other))


def test_distributions_over_other_tokens_are_refused(network, codec, other, tiny_folder):
    recipe = Recipe(algorithm=Distill(teacher=str(other), loss=FullVocabulary()))
    with pytest.raises(EngineError, match="another tokenizer"):
        load_companions(recipe, network, codec, start=tiny_folder)


def test_ends_of_tokens_in_a_text(codec, other):
    text = "xabé∑" + "y" * 20
    bytewise = text_ends(codec, codec.encode(text), text)
    assert bytewise == [1, 2, 3, None, 4, None, None, 5, *range(6, 26)]
    theirs = load_codec(other)
    assert text_ends(theirs, theirs.encode(text), text) == [1, 3, None, 4, 5, *range(6, 26)]


def groups_of(*trajectories, prompt):
    task = Task(id="t", prompt=prompt, split_key="t")
    episodes = [Episode(id="e", task=task, group="g", trajectories=(row,)) for row in trajectories]
    return [Group(episodes, [0.0] * len(episodes))]


def test_a_teacher_with_the_same_tokens_is_subtracted_token_by_token():
    groups = groups_of(path([1, 2, 3], 1, logprob=-2.0), prompt="")
    found = teacher_advantages(groups, {"reference_logprobs": [[0.0, -0.5, -3.0]]})
    assert found == [[0.0, 1.5, -1.0]]
    assert teacher_advantages(groups, {}) == [[0.0, 0.0, 0.0]]


def test_a_translated_reading_of_the_same_tokens_changes_nothing(network, codec):
    """Through text and back, with a teacher that cuts alike, span by span is token by token."""
    stop = codec.encode("<|im_end|>")
    prompt = codec.encode(codec.render((user("hi"),)))
    rows = [
        path([*prompt, *codec.encode("abcdé!"), *stop], len(prompt)),
        path([*prompt, *codec.encode("cut of")], len(prompt)),
    ]
    groups = groups_of(*rows, prompt=(user("hi"),))
    recipe = Recipe(algorithm=Distill(teacher="x"))
    translation = Translation(network, codec, codec, recipe, token_budget=64)
    plain = teacher_advantages(groups, {"reference_logprobs": scores(network, *rows)})
    found = translation.advantages(groups)
    # The two bytes of é are one span: both carry its whole difference.
    place = len(prompt) + 4
    both = plain[0][place] + plain[0][place + 1]
    plain[0][place] = plain[0][place + 1] = both
    for ours, expected in zip(found, plain, strict=True):
        assert ours == pytest.approx(expected, abs=1e-4)


def test_a_teacher_reads_the_answer_in_its_own_tokens(network, codec, other):
    theirs = load_codec(other)
    teacher = Network(load_model(other, dtype="float32", device="cpu"))
    stop = codec.encode("<|im_end|>")
    prompt = codec.encode(codec.render((user("hi"),)))
    row = path([*prompt, *codec.encode("xab"), *stop], len(prompt))
    recipe = Recipe(algorithm=Distill(teacher="x"))
    translation = Translation(teacher, theirs, codec, recipe, token_budget=64)
    (found,) = translation.advantages(groups_of(row, prompt=(user("hi"),)))
    their_prompt = theirs.encode(theirs.render((user("hi"),)))
    reading = path(
        [*their_prompt, *theirs.encode("xab"), *theirs.encode("<|im_end|>")], len(their_prompt)
    )
    x, ab, end = scores(teacher, reading)[0][len(their_prompt) :]
    expected = [x + 1.0, ab + 2.0, ab + 2.0, end + 1.0]
    assert found[len(prompt) :] == pytest.approx(expected, abs=1e-4)
    assert not any(found[: len(prompt)])


def test_a_teacher_with_other_tokens_takes_no_environment(network, codec, other, tiny_folder):
    algorithm = Distill(teacher=str(other))
    found = load_companions(Recipe(algorithm=algorithm), network, codec, start=tiny_folder)
    values = {"model": "m", "dataset": ["a"], "recipe": {"algorithm": algorithm}}
    alone = translation_for(RunSpec(**values), found, codec, token_budget=64)
    assert isinstance(alone, Translation)
    playing = RunSpec(**values, environment="envs:Game")
    with pytest.raises(EngineError, match="turns that each tokenizer"):
        translation_for(playing, found, codec, token_budget=64)
    same = load_companions(
        Recipe(algorithm=Distill(teacher=str(tiny_folder))), network, codec, start=tiny_folder
    )
    assert translation_for(playing, same, codec, token_budget=64) is None
