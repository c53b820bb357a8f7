"""What the embedded engine records of each token, as the dashboard reads it."""

import math

import pytest

from training_gym.records.index import Index
from training_gym.records.readers import read_episodes, read_stream
from training_gym.spec.episodes import SAMPLED

SETS = ("recipe.num_steps=1", "recipe.max_response_tokens=8", "recipe.sampling.temperature=0.7")


@pytest.fixture(scope="module")
def trained_run(play, define):
    played = play(define(), *SETS)
    assert played.code == 0
    return played.run


@pytest.fixture(scope="module")
def details(trained_run, home, tmp_path_factory):
    index = Index(home / "runs", tmp_path_factory.mktemp("cache"))
    episodes = list(read_episodes(trained_run))
    return {e.id: index.episode(trained_run.run_id, e.id) for e in episodes}


def test_every_learned_token_has_its_values(trained_run, details):
    records = {r["episode"]["id"]: r for r in read_stream(trained_run, "episodes")}
    assert len(details) == len(records) == 8
    for detail in details.values():
        (path,) = detail.trajectories
        assert set(path.columns) == {"advantage", "entropy", "mismatch", "trainer_logprobs"}
        for name, values in path.columns.items():
            known = [not math.isnan(value) for value in values]
            assert known == [bool(flag & SAMPLED) for flag in path.flags], name
        drawn = [place for place, flag in enumerate(path.flags) if flag & SAMPLED]
        assert max(abs(path.columns["mismatch"][place]) for place in drawn) < 1e-4
        # Nearly uniform over 384 tokens: a random model.
        assert all(0 < path.columns["entropy"][place] <= math.log(384) for place in drawn)
        assert len({path.columns["advantage"][place] for place in drawn}) == 1


def test_advantages_of_a_group_are_around_zero(details):
    groups = {}
    for detail in details.values():
        (path,) = detail.trajectories
        groups.setdefault(detail.row.group, []).append(path.columns["advantage"][-1])
    assert len(groups) == 2
    for values in groups.values():
        assert sum(values) == pytest.approx(0, abs=1e-2)
        assert max(values) > 0.1


def test_tokens_read_as_the_model_writes_them(trained_run, details):
    for episode in read_episodes(trained_run):
        (path,) = details[episode.id].trajectories
        assert path.text is not None
        assert len(path.text) == len(path.ids)
        prompt = "".join(path.text[: path.prompt_length])
        assert episode.task.prompt_text in prompt
