import pytest

from training_gym.records.health.decomposition import change_of, length_classes, split_by
from training_gym.records.health.explanation import explain
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import Counters, Outcome, Score
from training_gym.spec.errors import RecordsError
from training_gym.spec.tasks import Task

PARTS = {"parts": [{"name": "right", "weight": 1.0}, {"name": "long", "weight": 0.5}]}


@pytest.fixture
def record(tmp_path, make_episode, make_trajectory):
    """Write a run: a function from step, task and member to reward, length, components, status."""

    def make(play, steps=10, reward=None):
        manifest = Manifest(run_id="r1", created_at=1.0, run={"reward": reward or {}})
        run = RunDirectory.create(tmp_path / "r1", manifest)
        with Recorder(run, writer="engine", attempt=1) as recorder:
            for step in range(1, steps + 1):
                for task in ("a", "b"):
                    for member in range(4):
                        told = play(step, task, member)
                        recorder.episode(_episode(make_episode, make_trajectory, step, task,
                                                  member, **told))  # fmt: skip
        return run

    return make


def _episode(
    make_episode, make_trajectory, step, task, member, reward, length=5, components=(), status=None
):
    return make_episode(
        member,
        id=f"{step}-{task}.{member}",
        group=f"{step}-{task}",
        task=Task(id=task, prompt="?", split_key=task),
        trajectories=(make_trajectory(answer=tuple(range(length)), versions=(0,) * length),),
        counters=Counters(batch=step - 1),
        score=Score(value=reward, components=dict(components)),
        outcome=Outcome(status=status or "finished"),
    )


def of_kind(found, kind):
    return [part for part in found.parts if part.kind == kind]


def test_the_parts_of_a_split_add_up_to_the_change(play):
    before = [play(reward=r, length=n) for r, n in ((0.1, 5), (0.2, 5), (0.4, 9))]
    after = [play(reward=r, length=n) for r, n in ((0.2, 5), (0.9, 9), (0.8, 9), (0.7, 13))]
    split = split_by(before, after, length_classes([*before, *after]))
    total = change_of([p.reward for p in before], [p.reward for p in after])
    assert split.shares + split.rewards == pytest.approx(total.difference)


def test_a_class_that_one_side_lacks_counts_as_a_change_of_shares(play):
    before = [play(reward=0.0, status="truncated") for _ in range(4)]
    after = [play(reward=1.0) for _ in range(4)]
    split = split_by(before, after, lambda one: one.status)
    assert (split.shares, split.rewards) == (1.0, 0.0)
    assert split_by(after, after, lambda one: one.status) is None


def test_a_change_by_length_alone_is_told_from_better_answers(record):
    """Reward is a tenth of the length, whatever the step; only lengths change."""

    def play(step, task, member):
        length = 2 + member + (4 if step > 5 else 0)
        return {"reward": length / 10, "length": length}

    found = explain(record(play))
    assert found.moved
    assert found.summary.startswith("the mean reward rose: 0.35 → 0.75 (+0.4 ±")
    assert "most of it from other lengths" in found.summary
    (length,) = of_kind(found, "length")
    assert length.effect == pytest.approx(0.4, abs=0.05)
    assert (length.before, length.after) == (3.5, 7.5)
    assert length.episodes[0] in {"9-a.3", "9-b.3", "10-a.3", "10-b.3"}


def test_each_components_part_is_weighed(record):
    def play(step, task, member):
        right, long = (0.8, 0.2) if step > 5 else (0.2, 0.4)
        return {
            "reward": right + 0.5 * long + 0.01 * member,
            "components": {"right": right, "long": long, "long.detail": 1.0},
        }

    found = explain(record(play, reward=PARTS))
    effects = {part.name: part.effect for part in of_kind(found, "component")}
    assert effects == {"right": pytest.approx(0.6), "long": pytest.approx(-0.1)}
    assert "most of it from component right" in found.summary


def test_tasks_that_flipped_cite_an_episode_from_before_and_one_from_after(record):
    def play(step, task, member):
        return {"reward": float((task == "a") == (step > 5)) + 0.01 * member}

    found = explain(record(play))
    assert not found.moved
    assert found.summary.startswith("the mean reward did not move beyond noise")
    flipped = {part.name: part for part in of_kind(found, "task")}
    assert flipped["a"].text == "task a rose: 0.015 → 1.02"
    assert flipped["a"].episodes == ("2-a.0", "9-a.3")
    assert flipped["b"].text.startswith("task b fell")


def test_why_a_flat_reward_is_flat(record):
    found = explain(record(lambda step, task, member: {"reward": 0.0}))
    (cause,) = of_kind(found, "cause")
    assert "most groups got equal rewards" in cause.text
    (signal,) = of_kind(found, "signal")
    assert signal.after == 1.0


def test_truncation_is_a_part_of_its_own(record):
    def play(step, task, member):
        cut = step > 5 and member < 3
        return {"reward": 0.1 * member if cut else 0.8, "status": "truncated" if cut else None}

    (part,) = of_kind(explain(record(play)), "outcome")
    assert part.text.startswith("truncated episodes 0% → 75%")
    assert part.effect < -0.4


def test_evaluations_tell_what_flipped(record):
    run = record(lambda step, task, member: {"reward": 0.5 + 0.1 * member})
    with Recorder(run, writer="late", attempt=1) as recorder:
        flipped = ((0, {"x": 0.0, "y": 1.0, "z": 1.0}), (8, {"x": 1.0, "y": 0.0, "z": 1.0}))
        for step, means in flipped:
            recorder.evaluation(
                name="held",
                mean=sum(means.values()) / 3,
                task_means=means,
                counters=Counters(optimizer_step=step),
            )
    (part,) = of_kind(explain(run), "evaluation")
    assert part.text == "evaluation held: 0.667 → 0.667; 1 tasks flipped up, 1 down"
    assert part.episodes == ("held-8-y.0", "held-8-x.0")


def evaluated(run, before, after, writer="late"):
    """Eight held-out tasks before and after ten batches."""
    with Recorder(run, writer=writer, attempt=1) as recorder:
        for batch, change in ((0, before), (10, after)):
            means = {f"x{n}": 0.1 * n + change(n) for n in range(8)}
            recorder.evaluation(
                name="held",
                mean=sum(means.values()) / 8,
                task_means=means,
                counters=Counters(batch=batch, optimizer_step=batch),
            )
    return explain(run)


def test_a_flat_reward_is_not_said_to_come_from_small_updates_where_an_evaluation_rose(record):
    run = record(lambda step, task, member: {"reward": 0.5 + 0.1 * member})
    found = evaluated(run, lambda n: 0.0, lambda n: 0.1 + 0.02 * n)
    assert not found.moved
    assert found.summary.endswith("by steps 9 to 10, but evaluation held rose")
    (cause,) = of_kind(found, "cause")
    assert "too small" not in cause.text
    assert "yet evaluation held rose by +0.17 (95 % interval +0.1" in cause.text
    (part,) = of_kind(found, "evaluation")
    assert part.text.startswith("evaluation held: 0.35 → 0.52, +0.17 (95 % interval +0.1")


@pytest.mark.parametrize(
    "after",
    [lambda n: 0.0, lambda n: 0.1 * (-1) ** n + 0.01, lambda n: 0.3 if n == 0 else 0.0],
    ids=["not at all", "up and down", "one task"],
)
def test_it_is_where_no_evaluation_moved_beyond_chance(record, after):
    run = record(lambda step, task, member: {"reward": 0.5 + 0.1 * member})
    found = evaluated(run, lambda n: 0.0, after)
    (cause,) = of_kind(found, "cause")
    assert cause.text.endswith("there is a signal: the updates may be too small")
    assert found.summary.endswith("by steps 9 to 10")
    assert "interval" not in of_kind(found, "evaluation")[0].text


def test_updates_that_made_an_evaluation_worse_are_not_too_small(record):
    run = record(lambda step, task, member: {"reward": 0.5 + 0.1 * member})
    (cause,) = of_kind(evaluated(run, lambda n: 0.2, lambda n: 0.01 * n), "cause")
    assert "too small" not in cause.text
    assert "the updates do something: evaluation held fell by -0.165" in cause.text


def test_an_evaluation_that_rose_elsewhere_explains_nothing_of_chosen_steps(record):
    run = record(lambda step, task, member: {"reward": 0.5 + 0.1 * member}, steps=20)
    with Recorder(run, writer="late", attempt=1) as recorder:
        for batch, mean in ((0, 0.1), (10, 0.9), (20, 0.9)):
            means = {f"x{n}": mean + 0.01 * n for n in range(8)}
            counters = Counters(batch=batch, optimizer_step=batch)
            recorder.evaluation(name="held", mean=mean, task_means=means, counters=counters)
    assert "evaluation held rose" in explain(run, before=2, after=9).summary
    assert "too small" in of_kind(explain(run, before=14, after=18), "cause")[0].text


def test_steps_may_be_chosen(record):
    run = record(lambda step, task, member: {"reward": step / 10 + 0.01 * member}, steps=10)
    found = explain(run, before=3, after=6)
    assert (found.steps_before, found.steps_after) == ((2, 3), (5, 6))
    assert found.difference == pytest.approx(0.3)


def test_too_little_to_compare_is_an_error(record):
    with pytest.raises(RecordsError, match="1 steps with judged episodes"):
        explain(record(lambda step, task, member: {"reward": 1.0}, steps=1))


def test_the_same_run_is_always_explained_in_the_same_words(record):
    run = record(lambda step, task, member: {"reward": (step * member) % 7 / 7})
    assert explain(run) == explain(run)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"before": 99}, "there is no step 99"),
        ({"after": 11}, "there is no step 11"),
        ({"before": 0}, "there is no step 0"),
        ({"before": 5, "after": 5}, "step 5 is not before step 5"),
        ({"before": 10}, "step 10 is not before step 10"),
        ({"before": 8, "after": 3}, "step 8 is not before step 3"),
    ],
)
def test_steps_that_cannot_be_compared_are_refused_with_those_there_are(record, asked, told):
    run = record(lambda step, task, member: {"reward": step / 10})
    with pytest.raises(RecordsError, match=told) as refused:
        explain(run, **asked)
    assert "the steps 1 to 10" in refused.value.fix


@pytest.mark.parametrize(
    ("asked", "windows"),
    [
        ({"before": 1, "after": 4}, ((1, 2), (3, 4))),
        ({"before": 5, "after": 6}, ((5, 5), (6, 6))),
        ({"before": 9}, ((9, 9), (10, 10))),
        ({}, ((1, 2), (9, 10))),
    ],
)
def test_no_step_is_compared_with_itself(record, asked, windows):
    run = record(lambda step, task, member: {"reward": step / 10})
    found = explain(run, **asked)
    assert (found.steps_before, found.steps_after) == windows
