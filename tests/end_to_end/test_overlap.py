"""Rollouts that overlap training: the bound holds, everything is said, a kill loses nothing."""

import itertools

import pytest

from training_gym.records.readers import read_episodes, read_stream
from training_gym.spec.episodes import SAMPLED

SETS = (
    "recipe.num_steps=5",
    "recipe.group_size=3",
    "recipe.max_response_tokens=8",
    "recipe.max_staleness=2",
    "recipe.engine.deterministic=false",
    "recipe.engine.token_budget=64",
    "recipe.optimizer.learning_rate=0.003",
    "recipe.checkpoints.every=1",
)


@pytest.fixture(scope="module")
def overlapped(play, define):
    return play(define(), *SETS)


def test_old_tokens_are_learned_from_within_the_bound(overlapped):
    assert overlapped.code == 0
    values = [record["values"] for record in read_stream(overlapped.run, "metrics")]
    assert len(values) == 5
    assert 0 < max(found["policy_lag_max"] for found in values) <= 2
    assert {found["stale_dropped_share"] for found in values} == {0.0}
    assert all(found["episodes"] == 6.0 for found in values)
    assert overlapped.summary["steps"] == 5


def test_every_token_tells_which_policy_drew_it(overlapped):
    records = list(read_stream(overlapped.run, "episodes"))
    for episode, record in zip(read_episodes(overlapped.run), records, strict=True):
        learned_at = episode.counters.policy_version
        (path,) = episode.trajectories
        drawn_by = [v for v, flag in zip(path.versions, path.flags, strict=True) if flag & SAMPLED]
        assert drawn_by == sorted(drawn_by)
        assert learned_at - 2 <= drawn_by[0] <= drawn_by[-1] <= learned_at
        assert record["staleness"] == learned_at - drawn_by[0]


def test_where_the_learning_policy_drew_the_tokens_trainer_and_sampler_agree(overlapped):
    values = [record["values"] for record in read_stream(overlapped.run, "metrics")]
    pure = [found["sampler_mismatch_mean"] for found in values if "sampler_mismatch_mean" in found]
    assert pure
    assert max(pure) < 1e-4
    # While the ratio of all tokens tells how far the policy has moved since.
    assert max(found["mismatch_mean"] for found in values) > 1e-4


def test_a_resumed_run_says_that_it_plays_again(prepared_run, engine, define, monkeypatch):
    from training_gym.engines.local.loop import Loop

    run = prepared_run(define(), *SETS)
    due = Loop._due
    calls = itertools.count(1)

    def killed_at_the_third(loop):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return due(loop)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_due", killed_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            engine(run, 1)
    resumed = engine(run, 2)
    assert resumed.code == 0
    (again,) = [e for e in read_stream(run, "events") if e["kind"] == "episodes_played_again"]
    assert again["episodes"] == 3 * again["groups"] > 0
    draws = [int(e.group.split("-")[1]) for e in read_episodes(run) if e.member == 0]
    assert sorted(draws) == list(range(10))


def test_the_clock_and_determinism_do_not_go_together(command, define):
    done = command("train", define(), "--set", "recipe.max_staleness=1", "--dry-run")
    assert done.code != 0
    assert "deterministic=True rules out" in done.two_lines
    assert "LocalEngine(deterministic=False)" in done.two_lines
