import io

import pytest

from training_gym.records.tokens import Block, TokenColumns, load_trajectory, unpack
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.errors import RecordsError


class Sidecar:
    """Token columns in memory."""

    def __init__(self):
        self.data = b""

    def write(self, block):
        offset = len(self.data)
        self.data += block
        return offset

    def read(self, offset, size):
        return io.BytesIO(self.data[offset : offset + size]).read()


@pytest.fixture
def sidecar():
    return Sidecar()


def stored_and_loaded(episode, sidecar, tmp_path):
    stored = TokenColumns().store(episode, tmp_path, sidecar.write)
    return tuple(load_trajectory(line, sidecar.read) for line in stored)


def test_what_is_loaded_equals_what_was_stored(make_episode, make_trajectory, sidecar, tmp_path):
    trajectories = (
        make_trajectory(),
        make_trajectory(agent="critic", trained=(False,) * 4 + (True, False)),
        make_trajectory(prompt=(), answer=(7,), versions=(0,)),
    )
    episode = make_episode(trajectories=trajectories)
    assert stored_and_loaded(episode, sidecar, tmp_path) == trajectories


def test_an_empty_trajectory_survives(make_episode, sidecar, tmp_path):
    empty = Trajectory(token_ids=(), flags=(), logprobs=(), versions=(), prompt_length=0)
    assert stored_and_loaded(make_episode(trajectories=(empty,)), sidecar, tmp_path) == (empty,)


def test_a_prompt_that_was_itself_sampled_keeps_its_columns(make_episode, sidecar, tmp_path):
    forked = Trajectory(
        token_ids=(1, 2, 3),
        flags=(PROMPT, SAMPLED, SAMPLED),
        logprobs=(0.0, -0.5, -0.25),
        versions=(-1, 2, 3),
        prompt_length=2,
    )
    assert stored_and_loaded(make_episode(trajectories=(forked,)), sidecar, tmp_path) == (forked,)


def test_a_groups_prompt_is_stored_once_in_a_sidecar(make_episode, sidecar, tmp_path):
    columns = TokenColumns()
    one, two = (
        columns.store(make_episode(member), tmp_path / "a", sidecar.write)[0] for member in (0, 1)
    )
    assert one["prompt"] == two["prompt"]
    assert one["tokens"]["offset"] < two["tokens"]["offset"]
    other_group = columns.store(make_episode(group="h"), tmp_path / "a", sidecar.write)[0]
    assert other_group["prompt"]["offset"] > two["tokens"]["offset"]
    next_file = columns.store(make_episode(2), tmp_path / "b", sidecar.write)[0]
    assert next_file["prompt"]["offset"] > other_group["tokens"]["offset"]


def test_a_changed_byte_is_noticed(make_episode, sidecar, tmp_path):
    stored = TokenColumns().store(make_episode(), tmp_path, sidecar.write)[0]
    sidecar.data = sidecar.data[:-1] + b"\xff"
    with pytest.raises(RecordsError, match="checksum"):
        load_trajectory(stored, sidecar.read)


def test_display_columns_are_halves():
    block = Block.pack(("entropy", "f16", [0.5, 1.5]), ("ids", "u32", [1]))
    assert len(block.data) == 8
    values = unpack(block.reference(0), lambda offset, size: block.data[offset : offset + size])
    assert values == {"entropy": (0.5, 1.5), "ids": (1,)}


def test_no_column_of_a_trajectory_is_forgotten():
    # A new field must be stored and loaded here, or it would be lost without a word.
    assert set(Trajectory.model_fields) == {
        "agent",
        "token_ids",
        "flags",
        "logprobs",
        "versions",
        "prompt_length",
        "trained",
    }
