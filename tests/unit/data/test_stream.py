import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_gym.data import TaskStream
from training_gym.spec.errors import CheckpointError, DataError
from training_gym.spec.tasks import Task


def make(n: int) -> list[Task]:
    return [Task(id=f"t{i}", prompt="p", split_key="k") for i in range(n)]


def test_every_epoch_holds_every_task_once_in_a_new_order():
    stream = TaskStream(make(10), seed=1)
    first, second = stream.take(10), stream.take(10)
    assert sorted(t.id for t in first) == sorted(t.id for t in second)
    assert first != second
    assert first == TaskStream(make(10)[::-1], seed=1).take(10)
    assert first != TaskStream(make(10), seed=2).take(10)


def test_without_shuffle_the_given_order_repeats():
    assert [t.id for t in TaskStream(make(3), 0, shuffle=False).take(5)] == [
        "t0",
        "t1",
        "t2",
        "t0",
        "t1",
    ]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    st.integers(1, 12),
    st.lists(st.integers(0, 15), max_size=12),
    st.lists(st.integers(0, 15), min_size=1, max_size=12),
)
def test_a_restored_stream_goes_on_exactly(size, before, after):
    stream = TaskStream(make(size), seed=4)
    for n in before:
        stream.take(n)
    state = json.loads(json.dumps(stream.state()))
    other = TaskStream(make(size), seed=4)
    other.restore(state)
    assert [stream.take(n) for n in after] == [other.take(n) for n in after]


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(1, 12), st.lists(st.integers(1, 12), min_size=1, max_size=30))
def test_no_batch_holds_a_task_twice_unless_it_must(size, batches):
    stream = TaskStream(make(size), seed=0)
    for n in batches:
        batch = [task.id for task in stream.take(min(n, size))]
        assert len(set(batch)) == len(batch)


def test_other_tasks_or_another_seed_are_refused():
    state = TaskStream(make(3), seed=0).state()
    for other in (TaskStream(make(4), seed=0), TaskStream(make(3), seed=1)):
        with pytest.raises(CheckpointError, match="other tasks or another seed"):
            other.restore(state)


def test_no_tasks_are_an_error():
    with pytest.raises(DataError, match="no tasks"):
        TaskStream([], seed=0)
