import pytest

from training_gym.records.index import EpisodeQuery, Range
from training_gym.records.readers import read_episodes
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.episodes import Counters, Episode, Outcome, Score
from training_gym.spec.errors import RecordsError
from training_gym.spec.messages import assistant, user
from training_gym.spec.tasks import Task


def episode(number, reward, *, group="g", batch=0, status="finished", text="yes", **metadata):
    task = Task(
        id=f"task-{group}", prompt=(user("why?"),), answer="x", metadata=metadata, split_key="k"
    )
    return Episode(
        id=f"{group}.{number}",
        task=task,
        group=group,
        member=number,
        messages=(user("why?"), assistant(text)),
        outcome=Outcome(status=status, reason="" if status == "finished" else f"it {status}"),
        score=None if reward is None else Score(value=reward, components={"c": reward}),
        counters=Counters(batch=batch, optimizer_step=batch, policy_version=batch),
    )


@pytest.fixture
def played(new_run):
    def write(*episodes, **algorithm):
        run = new_run("r1", **algorithm)
        with Recorder(run, writer="engine", attempt=1) as recorder:
            for one in episodes:
                recorder.episode(one)
        return run

    return write


def ids(index, **query):
    return [row.id for row in index.episodes("r1", EpisodeQuery(**query)).episodes]


def test_training_belongs_to_the_batch_that_sums_it_up(index, played):
    played(episode(0, 1.0, batch=4))
    assert index.episodes("r1").episodes[0].step == 5
    assert [row.step for row in index.steps("r1")] == [5]


def test_conditions_hold_together(index, played):
    played(
        episode(0, 0.0, group="a", batch=0),
        episode(1, 0.5, group="a", batch=0, status="truncated"),
        episode(0, 1.0, group="b", batch=1, environment="maze"),
        episode(1, None, group="b", batch=1, status="infrastructure_failed", environment="maze"),
    )
    assert ids(index, reward=Range(low=0.5)) == ["b.0", "a.1"]
    assert ids(index, step=Range(low=1, high=1)) == ["a.1", "a.0"]
    assert ids(index, status=("truncated", "infrastructure_failed")) == ["b.1", "a.1"]
    assert ids(index, judged=False) == ["b.1"]
    assert ids(index, environment="maze", judged=True) == ["b.0"]
    assert ids(index, component="c", component_value=Range(high=0.4)) == ["a.0"]
    assert ids(index, component="unknown") == []
    assert ids(index, task="task-b") == ["b.1", "b.0"]
    assert ids(index, group="a") == ["a.1", "a.0"]
    assert ids(index, error="TRUNC") == ["a.1"]


@pytest.mark.parametrize("order", ["newest", "oldest", "reward", "length", "duration"])
def test_pages_leave_nothing_out_and_repeat_nothing(index, demo, order):
    run = demo("dead_sandbox")
    whole = index.episodes(run, EpisodeQuery(order=order, limit=1000)).episodes
    seen, cursor = [], ""
    while True:
        page = index.episodes(run, EpisodeQuery(order=order, limit=7, cursor=cursor))
        seen += page.episodes
        assert page.total == len(whole)
        cursor = page.cursor
        if not cursor:
            break
    assert seen == list(whole)
    if order == "reward":
        rewards = [row.reward for row in seen]
        judged = [reward for reward in rewards if reward is not None]
        assert judged == sorted(judged, reverse=True)
        assert None not in rewards[: len(judged)]


def test_text_is_found_wherever_it_stands(index, played):
    played(episode(0, 1.0, text="The Fox"), episode(1, 1.0, text="a hen"))
    assert ids(index, text="fox") == ["g.0"]
    assert ids(index, text="WHY") == ["g.1", "g.0"]
    assert ids(index, text="wolf") == []


def test_a_search_that_takes_long_goes_on_from_its_cursor(index, demo, monkeypatch):
    monkeypatch.setattr("training_gym.records.index.episode_pages.SEARCH_S", 0.0)
    run = demo()
    found, cursor, pages = [], "", 0
    while True:
        page = index.episodes(run, EpisodeQuery(text="python", limit=5, cursor=cursor))
        found += page.episodes
        cursor, pages = page.cursor, pages + 1
        if not cursor:
            break
        assert not page.complete
    assert pages > 3
    monkeypatch.undo()
    assert found == list(index.episodes(run, EpisodeQuery(text="python", limit=1000)).episodes)


def test_what_taught_nothing_says_why(index, played):
    played(
        episode(0, 1.0, group="equal"),
        episode(1, 1.0, group="equal"),
        episode(0, 0.0, group="good"),
        episode(1, 1.0, group="good"),
        episode(2, None, group="good", status="infrastructure_failed"),
        skip_equal_groups=True,
    )
    found = {
        row.id: row.discarded for row in index.episodes("r1", EpisodeQuery(discarded=True)).episodes
    }
    assert found == {
        "equal.0": "all 2 judged episodes of its group got 1",
        "equal.1": "all 2 judged episodes of its group got 1",
        "good.2": "infrastructure failed: it infrastructure_failed",
    }
    assert ids(index, discarded=False) == ["good.1", "good.0"]


def test_advantages_are_those_of_the_algorithm(index, played):
    from training_gym.algorithms.advantages import group_relative

    rewards = [0.0, 1.0, 1.0, 0.5]
    played(*(episode(n, reward) for n, reward in enumerate(rewards)))
    rows = index.group("r1", "g").episodes
    expected = group_relative(rewards, normalize_by_std=True)
    assert [one.row.advantage for one in rows] == pytest.approx(expected)


def test_tokens_are_those_that_were_recorded(index, demo, tmp_path):
    run = demo()
    written = read_episodes(RunDirectory(tmp_path / "runs" / run), stream="train", limit=1)[0]
    found = index.episode(run, written.id)
    path, shown = written.trajectories[0], found.trajectories[0]
    assert (shown.ids, shown.flags, shown.logprobs) == (path.token_ids, path.flags, path.logprobs)
    assert shown.trained == path.loss_mask
    assert found.row.tokens == path.num_sampled
    assert "".join(shown.text).startswith(written.task.prompt_text[:10])
    assert set(shown.columns) == {"entropy", "trainer_logprobs", "mismatch"}
    assert {len(column) for column in shown.columns.values()} == {len(path.token_ids)}


def test_old_lines_without_sums_are_read_from_the_sidecar(index, demo, tmp_path, monkeypatch):
    from training_gym.records.index import sampled

    run = demo()
    told = index.episodes(run, EpisodeQuery(limit=1000)).episodes
    index.close()
    (tmp_path / "cache" / "runs" / f"{run}.sqlite").unlink()
    read = sampled.SidecarReader._sum

    def without_sums(self, segment, trajectory):
        return read(self, segment, {k: v for k, v in trajectory.items() if k != "sampled"})

    monkeypatch.setattr(sampled.SidecarReader, "_sum", without_sums)
    again = index.episodes(run, EpisodeQuery(limit=1000)).episodes
    assert [row.tokens for row in again] == [row.tokens for row in told]
    assert [row.mean_logprob for row in again] == pytest.approx(
        [row.mean_logprob for row in told], rel=1e-4
    )


def test_damaged_columns_are_a_problem_not_an_error(index, demo, tmp_path):
    run = demo()
    first = index.episodes(run, EpisodeQuery(stream="train")).episodes[0].id
    for sidecar in (tmp_path / "runs" / run / "streams" / "episodes").glob("*.tok"):
        sidecar.write_bytes(b"\0" * sidecar.stat().st_size)
    found = index.episode(run, first)
    assert found.problem
    assert found.trajectories == ()
    assert found.episode["messages"]


def test_an_unknown_episode_is_refused(index, demo):
    run = demo()
    with pytest.raises(RecordsError, match="no episode"):
        index.episode(run, "nobody")
    with pytest.raises(RecordsError, match="no group"):
        index.group(run, "nobody")


def test_histograms_count_every_episode(index, demo):
    run = demo("dead_sandbox")
    found = index.histogram(run, EpisodeQuery(stream="train"), bins=5)
    rows = index.episodes(run, EpisodeQuery(stream="train", limit=1000)).episodes
    assert sum(found.counts) + found.missing == len(rows)
    assert len(found.edges) == len(found.counts) + 1
    lengths = index.histogram(run, of="length", bins=3)
    assert lengths.missing == 0


def test_text_that_is_no_text_is_shown_as_text(index, demo):
    run = demo("hostile")
    rows = index.episodes(run, EpisodeQuery(limit=1000)).episodes
    found = [index.episode(run, row.id).model_dump_json() for row in rows[:20]]
    assert any("onerror" in one for one in found)
    lines = index.logs(run).lines
    assert max(line.cut for line in lines) > 1_000_000
    assert all(line.model_dump_json() for line in lines)
