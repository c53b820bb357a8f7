"""Rewards tried in a worker process, as preflight does."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.checks.conftest import Make

from training_gym.checks import Subject, run_checks
from training_gym.checks import reward as reward_module
from training_gym.checks.outputs import outputs_for, played
from training_gym.checks.reward import Trial, rewards_judge_anything, verdict
from training_gym.rewards import Judgement
from training_gym.spec.episodes import Score
from training_gym.spec.findings import Finding
from training_gym.spec.tasks import Task

TASK = Task(id="t", prompt="What is 1 + 1?", answer=2, split_key="t")


def tried(subject: Subject) -> list[Finding]:
    return run_checks(subject, [rewards_judge_anything])


@pytest.mark.parametrize(
    ("name", "code", "severity", "said"),
    [
        ("picky", "reward.raised", "error", "ZeroDivisionError"),
        ("nan", "reward.invalid", "error", "nan"),
        ("dies", "reward.died", "error", ""),
        ("always", "reward.constant", "warning", "was 0.5 for all of 14 outputs tried"),
        ("never", "reward.never_judges", "warning", "returned None for all of 14"),
        ("absent", "reward.unusable", "error", "absent"),
    ],
)
def test_what_a_reward_does_wrong_is_found(
    make: Make, name: str, code: str, severity: str, said: str
) -> None:
    [finding] = tried(make(reward=f"rewards:{name}"))
    assert (finding.code, finding.severity) == (code, severity)
    assert said in finding.message
    assert finding.fix


def test_the_output_that_a_reward_raised_on_is_named(make: Make) -> None:
    [finding] = tried(make(reward="rewards:picky"))
    assert "reward 'picky'" in finding.message
    assert "when the model's answer was an empty output" in finding.message
    assert "What is" in finding.message


@pytest.mark.parametrize(
    "written",
    [
        "def theirs(completions, **kwargs):\n    return [1.0 for each in completions]",
        "def theirs(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0",
    ],
)
def test_a_reward_as_other_tools_take_it_is_told_what_ours_is_given(
    make: Make, folder: Path, written: str
) -> None:
    (folder / "other.py").write_text(written)
    [finding] = tried(make(reward="other:theirs"))
    assert "let it take one finished episode" in finding.fix
    assert "@group_reward" in finding.fix


def test_what_a_reward_prints_is_passed_on_and_not_to_the_terminal(
    make: Make, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "loud.py").write_text(
        "def loud(episode):\n    print('\x1b[2J here')\n    return float(len(episode.completion))"
    )
    said: list[str] = []
    findings = tried(dataclasses.replace(make(reward="loud:loud"), say=said.append))
    assert findings == []
    assert said
    assert set(said) == {"loud prints: \x1b[2J here"}
    assert capfd.readouterr() == ("", "")


def test_rewards_that_tell_good_from_bad_give_no_finding(make: Make) -> None:
    for name in ("good", "exact", "boxed"):
        assert tried(make(reward=f"rewards:{name}")) == []


def test_a_reward_that_hangs_is_given_up_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {"reward_timeout_s": 0.3}
    [finding] = tried(make(reward="rewards:hangs_on_long", recipe=recipe))
    assert (finding.code, finding.severity) == ("reward.timeout", "error")
    assert "reward_timeout_s = 0.3" in finding.message
    monkeypatch.setattr(reward_module, "TRIAL_TIMEOUT_S", 0.3)
    [finding] = tried(make(reward="rewards:hangs"))
    assert (finding.code, finding.severity) == ("reward.slow", "warning")


def test_with_an_environment_faults_are_only_likely(make: Make) -> None:
    [finding] = tried(make(reward="rewards:picky", environment="envs:Guess"))
    assert (finding.code, finding.severity) == ("reward.raised", "warning")


def test_each_reward_of_an_evaluation_is_tried_once(make: Make) -> None:
    evals = [
        {"name": name, "dataset": "held.jsonl", "reward": "rewards:always"} for name in ("a", "b")
    ]
    assert [finding.code for finding in tried(make(evals=evals))] == ["reward.constant"]


def trials(*values: float | None) -> Sequence[Trial]:
    return [
        Trial(
            TASK,
            "x",
            Judgement(None, None, "none") if v is None else Judgement(Score(value=v), None, "ok"),
        )
        for v in values
    ]


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ((0.0, 1.0), []),
        ((1.0, 1.0), ["reward.constant"]),
        ((1.0, None), []),
        ((None, None), ["reward.never_judges"]),
        ((1.0,), []),
        ((), []),
    ],
)
def test_equal_scores_are_suspicious_only_where_all_are_judged(
    values: tuple[float | None, ...], codes: list[str]
) -> None:
    assert [finding.code for finding in verdict(trials(*values), "r", 30)] == codes


def test_outputs_dress_the_answer_and_are_hostile() -> None:
    outputs = outputs_for(TASK)
    assert outputs["the expected answer in a box"] == "The answer is \\boxed{2}."
    assert outputs["an empty output"] == ""
    assert len(outputs["an output of 10000 characters"]) > 10_000
    assert outputs["an echo of the prompt"] == TASK.prompt_text
    without = outputs_for(TASK.changed(answer={"tests": []}))
    assert "the expected answer" not in without


def test_a_trial_episode_looks_like_a_played_one() -> None:
    episode = played(TASK, "two words", 3)
    assert (episode.completion, episode.answer, episode.num_tokens) == ("two words", 2, 3)
    assert played(TASK, "", 0).num_tokens == 1


def test_a_slow_import_is_told_before_it_fails_a_run(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sleepy.py").write_text(
        "import time\ntime.sleep(0.5)\ndef good(episode): return float(len(episode.completion) % 7)"
    )
    assert tried(make(reward="sleepy:good")) == []
    monkeypatch.setattr(reward_module, "SLOW_IMPORT", 0.5 / 120)
    [finding] = tried(make(reward="sleepy:good"))
    assert (finding.code, finding.severity) == ("reward.slow_import", "warning")
    assert "importing reward 'good' took" in finding.message
    assert "of reward_import_timeout_s = 120" in finding.message


def test_an_import_beyond_its_limit_names_the_setting(make: Make, folder: Path) -> None:
    (folder / "stuck.py").write_text("import time\ntime.sleep(60)\ndef good(episode): return 1.0")
    limited = {"max_response_tokens": 32, "reward_import_timeout_s": 0.5}
    [finding] = tried(make(reward="stuck:good", recipe=limited))
    assert finding.code == "reward.unusable"
    assert finding.message == (
        "importing the rewards took longer than reward_import_timeout_s = 0.5"
    )
    assert "raise recipe.reward_import_timeout_s" in finding.fix
