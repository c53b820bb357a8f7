"""docs/coming-from.md names settings that there are, and its definitions are sound."""

import re
from pathlib import Path

import pytest

from training_gym import LossKL, Recipe, TrainConfig
from training_gym.spec.algorithms import ALGORITHMS
from training_gym.spec.settings import Settings

PAGE = (Path(__file__).parents[3] / "docs" / "coming-from.md").read_text()
SETTINGS = sorted(set(re.findall(r"`(recipe\.[a-z_.0-9]+)`", PAGE)))
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def field_of(settings: type[Settings], name: str) -> bool:
    return name in settings.model_fields or name in settings.__annotations__


@pytest.mark.parametrize("path", SETTINGS)
def test_every_setting_exists(path):
    owner, _, name = path.rpartition(".")
    if owner == "recipe.algorithm":
        assert any(field_of(kind, name) for kind in ALGORITHMS)
        return
    value = Recipe()
    for part in owner.split(".")[1:]:
        value = getattr(value, part)
    assert field_of(type(value), name)


def test_all_tables_were_read():
    assert len(SETTINGS) > 25


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_every_definition_is_one(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "snippet"}
    exec(SNIPPETS[number], names)
    assert isinstance(names["config"], TrainConfig)


def test_defaults_are_as_the_page_says():
    recipe = Recipe()
    assert recipe.optimizer.learning_rate == 1e-6
    assert recipe.optimizer.schedule == "constant"
    assert recipe.optimizer.weight_decay == 0
    assert recipe.algorithm.aggregation == "sequence_mean"
    assert recipe.algorithm.dual_clip is recipe.algorithm.kl is recipe.algorithm.correction is None
    assert recipe.algorithm.skip_equal_groups
    assert LossKL(coefficient=0.01).coefficient == 0.01
