import importlib.metadata
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_gym.data import load, own_reward
from training_gym.data.entries import create_generator, decode_entry, encode_entry
from training_gym.spec.datasets import FileDataset, GeneratedDataset
from training_gym.spec.errors import DataError
from training_gym.spec.messages import system, user

pytest.importorskip("reasoning_gym")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))


def test_tasks_are_generated_the_same_each_time_and_keep_their_entry(tmp_path, monkeypatch):
    # This generator depends on Python's hash seed and on the global random state.
    dataset = GeneratedDataset(
        name="list_functions", size=5, system_prompt="Think.", template="{input}!", shuffle=False
    )
    first = load(dataset, seed=0, root=".")
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert load(dataset, seed=0, root=".") == first
    task = first.tasks[0]
    entry = decode_entry(task.metadata["entry"])
    assert task.prompt == (system("Think."), user(entry["question"] + "!"))
    assert task.answer == entry["answer"]


def test_an_entry_that_comes_twice_is_one_task():
    digit = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    found = load(GeneratedDataset(name="chain_sum", size=100, arguments=digit), seed=0, root=".")
    assert found.report.duplicates > 0
    assert len(found.tasks) + found.report.duplicates == 100


def test_an_unknown_generator_suggests_the_nearest():
    with pytest.raises(DataError) as caught:
        load(GeneratedDataset(name="leg_countin"), seed=0, root=".")
    assert str(caught.value) == (
        "reasoning-gym has no generator 'leg_countin'\ndid you mean 'leg_counting'?"
    )


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"max_animal": 3}, "did you mean 'max_animals'?"),
        ({"seed": 3}, "give seed beside name"),
        ({"max_animals": -3}, "refuses its arguments"),
    ],
)
def test_wrong_arguments_are_refused(arguments, wanted):
    with pytest.raises(DataError) as caught:
        create_generator("leg_counting", 1, 0, arguments)
    assert wanted in str(caught.value)


def test_a_composition_is_given_as_json():
    member = {"name": "leg_counting", "weight": 1.0, "config": {"max_animals": 3}}
    entry = create_generator("composite", 1, 0, {"datasets": [member]})[0]
    assert entry["metadata"]["source_dataset"] == "leg_counting"


def test_a_missing_package_names_the_extra(monkeypatch):
    def missing(_name):
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(DataError, match="training-gym\\[reasoning\\]"):
        load(GeneratedDataset(name="leg_counting"), seed=0, root=".")


def test_only_generated_tasks_bring_their_reward():
    dataset = GeneratedDataset(name="leg_counting", arguments={"max_animals": 3})
    code = own_reward(dataset)
    assert code is not None
    assert code.kwargs == {"name": "leg_counting", "arguments": {"max_animals": 3}}
    assert own_reward(FileDataset(path="a.jsonl")) is None


_keys = st.one_of(st.text(max_size=3), st.integers(), st.just("$tuple"))
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_keys, inner, max_size=3),
    ),
    max_leaves=8,
)


@given(_values)
def test_entries_come_back_as_they_were(value):
    assert decode_entry(json.loads(json.dumps(encode_entry(value)))) == value
