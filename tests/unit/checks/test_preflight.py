import dataclasses
import pickle
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.checks.conftest import Make

from training_gym.checks import Subject, raise_errors, run_checks, surroundings
from training_gym.checks.preflight import CHECKS
from training_gym.checks.reward import exactly_one_reward, rewards_judge_anything
from training_gym.records.checkpoints import CheckpointInfo, write_checkpoint
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.algorithms import SFT
from training_gym.spec.engine import Support
from training_gym.spec.errors import CheckError
from training_gym.spec.findings import Finding
from training_gym.spec.rewards import weighted
from training_gym.testing.fake_engine import FakeEngine


def codes(subject: Subject, severity: str = "error") -> list[str]:
    """Codes of the findings of that severity; rewards are tried in tests of their own."""
    checks = [check for check in CHECKS if check is not rewards_judge_anything]
    return [found.code for found in run_checks(subject, checks) if found.severity == severity]


def test_a_sound_definition_gives_nothing_but_a_note(make: Make) -> None:
    findings = run_checks(make())
    assert [finding.code for finding in findings] == ["data.lengths_deferred"]
    raise_errors(findings)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": "no-such-model"}, "model.missing"),
        ({"dataset": "missing.jsonl"}, "data.unreadable"),
        ({"recipe": {"group_size": 1}}, "recipe.group_of_one"),
        ({"secrets": ["A_SECRET_NOBODY_SET"]}, "secret.missing"),
        ({"requirements": ["no-such-package>=1"]}, "requirement.missing"),
        ({"requirements": ["pydantic>=999"]}, "requirement.missing"),
        (
            {"recipe": {"engine": {"sampler": "vllm", "deterministic": False}}},
            "requirement.sampler",
        ),
        ({"reward": None}, "reward.missing"),
        ({"evals": [{"name": "train", "dataset": "held.jsonl"}]}, "eval.name"),
        ({"resume_from_checkpoint": "nowhere"}, "checkpoint.invalid"),
        ({"eval_dataset": "missing.jsonl"}, "data.unreadable"),
        (
            {"dataset": {"kind": "file", "path": "tasks.jsonl", "input_column": "x"}},
            "data.unreadable",
        ),
    ],
)
def test_what_would_fail_later_is_found(make: Make, fields: dict, code: str) -> None:
    assert codes(make(**fields)) == [code]


def test_supervised_training_needs_answers_and_no_reward(make: Make, folder: Path) -> None:
    sft = {"algorithm": SFT(), "group_size": 1}
    (folder / "texts.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    assert codes(make(recipe=sft, reward=None, dataset="texts.jsonl")) == []
    (folder / "blank.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b", "answer": "c"}\n')
    assert codes(make(recipe=sft, reward=None, dataset="blank.jsonl")) == ["data.no_answers"]


def test_an_evaluation_of_supervised_training_needs_a_judge(make: Make, folder: Path) -> None:
    (folder / "texts.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    evals = [{"name": "held", "dataset": "held.jsonl"}]
    fields = {"recipe": {"algorithm": SFT(), "group_size": 1}, "dataset": "texts.jsonl"}
    assert codes(make(**fields, reward=None, evals=evals)) == ["reward.missing"]
    assert codes(make(**fields, evals=evals)) == []


def test_two_rewards_are_refused_unless_composed(make: Make) -> None:
    def found(**fields: object) -> list[str]:
        generated = {"kind": "generated", "name": "chain_sum", "size": 4}
        subject = make(dataset=generated, **fields)
        return [finding.code for finding in run_checks(subject, [exactly_one_reward])]

    assert found(reward=None) == []
    assert found() == ["reward.twice"]
    own = "training_gym.rewards.library:ReasoningGymScore"
    assert found(reward=weighted(own=(own, 1.0), mine=("rewards:good", 0.1))) == []


class Referee:
    """An environment that judges by itself."""

    judges = True

    async def run(self, task, policy, ctx):
        raise NotImplementedError


def test_an_environment_may_judge_but_not_beside_a_reward(make: Make) -> None:
    assert codes(make(environment=Referee(), reward=None)) == []
    assert codes(make(environment=Referee())) == ["reward.twice"]
    assert codes(make(environment="envs:Silent")) == []


class Bare:
    pass


class Blocking:
    def run(self, task, policy, ctx):
        return None


class Short:
    async def run(self, task):
        return None


class Demanding(Referee):
    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (Bare, "has no method run"),
        (Blocking(), "run is not asynchronous"),
        (Short, "run takes (self, task), and is given a task, a policy and a context"),
        (Short(), "run takes (task), and is given"),
        (Demanding, "cannot be made without size"),
        (f"{__name__}:Absent", "has no 'Absent'"),
    ],
)
def test_an_environment_that_cannot_play_is_refused(make: Make, environment, words) -> None:
    subject = make(environment=environment)
    [found] = [f for f in run_checks(subject) if f.code == "environment.unusable"]
    assert words in found.message
    assert found.fix


def test_an_adapter_names_layers_that_exist(make: Make, folder: Path) -> None:
    from safetensors.numpy import save_file

    numpy = pytest.importorskip("numpy")
    weights = {"model.layers.0.self_attn.q_proj.weight": numpy.zeros((2, 2), numpy.float32)}
    save_file(weights, folder / "model" / "model.safetensors")
    assert codes(make(recipe={"adapter": {"target_modules": ["q_proj", "all-linear"]}})) == []
    subject = make(recipe={"adapter": {"target_modules": ["q_porj"]}})
    [found] = [f for f in run_checks(subject) if f.code == "model.no_such_layer"]
    assert (found.severity, found.fix) == ("error", "did you mean 'q_proj'?")


def test_a_base_model_takes_no_conversations(make: Make, folder: Path) -> None:
    (folder / "model" / "chat_template.jinja").unlink()
    assert codes(make()) == ["model.no_chat_template"]
    raw = {"kind": "file", "path": "tasks.jsonl", "input_format": "raw"}
    assert codes(make(dataset=raw)) == []


def test_a_template_in_the_tokenizers_configuration_counts(make: Make, folder: Path) -> None:
    (folder / "model" / "chat_template.jinja").unlink()
    (folder / "model" / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert codes(make()) == []


def test_an_engines_report_becomes_findings(make: Make) -> None:
    report = [
        Support(path="recipe.adapter", verdict="refused", reason="no adapters", fix="leave it out"),
        Support(path="recipe.seed", verdict="approximated", reason="not bit for bit"),
    ]
    subject = dataclasses.replace(make(), engine=FakeEngine(refused=report))
    assert codes(subject) == ["engine.refuses"]
    assert codes(subject, "warning") == ["engine.approximates"]


def test_few_tasks_are_a_warning(make: Make, folder: Path) -> None:
    (folder / "one.jsonl").write_text('{"prompt": "a"}\n')
    assert codes(make(dataset="one.jsonl")) == []
    assert codes(make(dataset="one.jsonl"), "warning") == ["data.few"]


def test_a_checkpoint_must_be_whole(make: Make, folder: Path) -> None:
    def fill(place: Path) -> None:
        (place / "model.safetensors").write_bytes(b"weights")

    run = RunDirectory(folder / "run")
    checkpoint = write_checkpoint(run, 3, fill, CheckpointInfo())
    subject = make(resume_from_checkpoint=str(checkpoint.folder))
    assert codes(subject) == []
    (checkpoint.folder / "model.safetensors").write_bytes(b"cut")
    assert codes(subject) == ["checkpoint.invalid"]


def test_a_full_disk_is_found_before_training(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        surroundings.shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000_000)
    )
    findings = [found for found in run_checks(make()) if found.severity == "error"]
    assert [found.code for found in findings] == ["disk.full"]
    assert "0.0 GB free" in findings[0].message


def test_a_read_only_home_is_two_lines(make: Make, tmp_path: Path) -> None:
    place = tmp_path / "mounted"
    place.mkdir()
    mount = shutil.which("mount")
    mounted = (
        mount
        and not subprocess.run(
            [mount, "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(place)],
            capture_output=True,
            check=False,
        ).returncode
    )
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    try:
        subject = dataclasses.replace(make(), home=place / "runs")
        findings = [found for found in run_checks(subject) if found.severity == "error"]
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert [found.code for found in findings] == ["home.read_only"]
    with pytest.raises(CheckError) as refused:
        raise_errors(findings)
    message, fix = str(refused.value).splitlines()
    assert "Read-only file system" in message
    assert "TRAINING_GYM_HOME" in fix


def test_a_home_that_is_a_file_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert codes(dataclasses.replace(make(), home=tmp_path / "taken" / "runs")) == [
        "home.read_only"
    ]


def test_several_errors_are_listed_at_once() -> None:
    def found(code: str, severity: str) -> Finding:
        return Finding(code=code, severity=severity, message=f"{code} is wrong", fix=f"mend {code}")

    raise_errors([found("a.b", "warning"), found("c.d", "note")])
    with pytest.raises(CheckError) as one:
        raise_errors([found("a.b", "error"), found("c.d", "warning")])
    assert str(one.value) == "a.b is wrong\nmend a.b"
    with pytest.raises(CheckError) as two:
        raise_errors([found("a.b", "error"), found("c.d", "error")])
    assert two.value.message.startswith("2 things would make this run fail:")
    assert "c.d is wrong\n    mend c.d [c.d]" in two.value.message
    assert two.value.exit_code == 7


def test_weights_that_are_cut_short_are_refused(make: Make, folder: Path) -> None:
    file = folder / "model" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert codes(make()) == ["model.damaged"]
    file.unlink()
    assert codes(make()) == ["model.damaged"]


@pytest.mark.parametrize(
    ("found", "exit_code"),
    [
        (("reward.raised",), 5),
        (("model.damaged", "model.no_chat_template"), 4),
        (("home.read_only", "disk.full"), 11),
        (("data.empty", "reward.raised"), 7),
        (("unheard.of",), 7),
    ],
)
def test_the_exit_code_is_that_of_what_is_foreseen(found: tuple[str, ...], exit_code: int) -> None:
    findings = [Finding(code=code, severity="error", message="m", fix="f") for code in found]
    with pytest.raises(CheckError) as refused:
        raise_errors(findings)
    assert refused.value.exit_code == exit_code
    assert pickle.loads(pickle.dumps(refused.value)).exit_code == exit_code


def test_preferences_need_pairs(make: Make, folder: Path) -> None:
    recipe = {"algorithm": {"kind": "dpo"}, "group_size": 1, "prompts_per_batch": 2}
    fields = {"reward": None, "recipe": recipe, "dataset": "pairs.jsonl"}
    (folder / "pairs.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    assert codes(make(**fields)) == []
    imitated = make(**fields | {"recipe": recipe | {"algorithm": {"kind": "sft"}}})
    assert "data.rejected_unused" in codes(imitated, "note")
    (folder / "pairs.jsonl").write_text('{"prompt": "a", "chosen": "b"}\n')
    assert codes(make(**fields)) == ["data.no_answers", "data.no_rejected"]


def test_a_teacher_must_be_there_and_is_counted(make: Make, folder: Path) -> None:
    missing = {"algorithm": {"kind": "distill", "teacher": str(folder / "nobody")}}
    assert "model.companion" in codes(make(reward=None, recipe=missing))
    there = {"algorithm": {"kind": "distill", "teacher": str(folder / "model")}}
    subject = make(reward=None, recipe=there)
    assert codes(subject) == []
    assert subject.planned.companion_parameters == subject.planned.num_parameters
    alone = make()
    assert alone.planned.companion_parameters == 0
    held = make(recipe={"algorithm": {"kind": "grpo", "kl": {"kind": "loss"}}})
    assert held.planned.companion_parameters == held.planned.num_parameters
    adapted = held.run.recipe.model_dump() | {"adapter": {}}
    assert make(recipe=adapted).planned.companion_parameters == 0


def test_an_episode_alone_needs_an_algorithm_that_compares_with_nothing(make: Make) -> None:
    lone = {"group_size": 1, "max_response_tokens": 32}
    assert "recipe.group_of_one" in codes(make(recipe=lone))
    assert "recipe.group_of_one" not in codes(make(recipe=lone | {"algorithm": {"kind": "ppo"}}))
