import re
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from training_gym.jobs.facts import Facts
from training_gym.jobs.submission import Intent
from training_gym.launch import Run, TrainConfig, apply_sets, load_definition, prepare, submit
from training_gym.records.documents import read_document
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.datasets import RowsDataset
from training_gym.spec.engine import Support
from training_gym.spec.errors import CheckError, PlanError, SourceError, SpecError
from training_gym.spec.job import Job, JobRef
from training_gym.spec.plan import Machine, Plan
from training_gym.testing.fake_engine import FakeEngine
from training_gym.testing.fake_platform import FakePlatform


def test_a_launch_leaves_everything_needed_to_find_and_repeat_it(
    config: TrainConfig, seams: SimpleNamespace, home: Path
) -> None:
    run = config.launch()
    directory = RunDirectory(home / "runs" / run.id)
    assert run.path == directory.path
    manifest = directory.manifest
    assert manifest.name == "Haiku & more!"
    assert manifest.tags == ("first",)
    assert manifest.origins["recipe.num_steps"] == "user"
    assert manifest.origins["recipe.engine.slots"] == "planner"
    assert manifest.origins["recipe.group_size"] == "default"
    assert manifest.data_sha256 is not None
    assert manifest.template_sha256 is not None
    plan = Plan.read(read_document(directory.plan_path))
    assert manifest.run == plan.run.model_dump(mode="json")
    assert Facts.read(read_document(directory.environment_path)).machine == plan.machine
    job = directory.job(1)
    assert job.source_sha256 == manifest.source_sha256
    assert job == seams.platform.jobs[f"{run.id}-1"].job
    intent = Intent.read(read_document(directory.attempt(1) / "intent.json"))
    assert (intent.platform, intent.key) == ("fake", f"{run.id}-1")
    ref = JobRef.read(read_document(directory.attempt(1) / "ref.json"))
    assert ref == seams.platform.jobs[intent.key].ref


def test_the_source_that_travels_holds_the_reward_and_the_rows(
    config: TrainConfig, home: Path
) -> None:
    run = config.launch()
    with tarfile.open(run.path / "source.tar.gz") as archive:
        names = archive.getnames()
    dataset = run.plan.run.dataset
    assert dataset is not None
    assert dataset.path in names
    reward = run.plan.run.reward
    assert f"{reward.module.replace('.', '/')}.py" in names


def test_ids_are_sortable_readable_and_unique(config: TrainConfig) -> None:
    one, two = config.launch(), config.launch()
    assert re.fullmatch(r"\d{8}-\d{6}-haiku-more-[0-9a-f]{4}", one.id)
    assert one.id != two.id
    assert Run.from_id(one.id).id == one.id
    assert {run.id for run in Run.all()} == {one.id, two.id}


def test_preparing_writes_nothing_and_submitting_what_was_prepared(
    config: TrainConfig, home: Path, seams: SimpleNamespace
) -> None:
    prepared = prepare(config)
    assert not list((home / "runs").iterdir())
    assert seams.platform.jobs == {}
    assert prepared.plan.machine == Machine(cpu_cores=2, memory_gib=8)
    run = submit(prepared)
    assert run.id == prepared.manifest.run_id
    assert list(seams.platform.jobs) == [f"{run.id}-1"]


def test_what_the_engine_refuses_stops_the_launch(
    config: TrainConfig, seams: SimpleNamespace, home: Path
) -> None:
    refused = Support(path="recipe.adapter", verdict="refused", reason="no", fix="leave it out")
    seams.engine = FakeEngine(refused=[refused])
    with pytest.raises(CheckError, match=r"refuses recipe\.adapter: no"):
        config.launch()
    assert not list((home / "runs").iterdir())


def test_what_does_not_fit_stops_the_launch(config: TrainConfig, seams: SimpleNamespace) -> None:
    seams.platform = FakePlatform(Machine(cpu_cores=1, memory_gib=0.1))
    with pytest.raises(PlanError, match="can be used"):
        config.launch()


def test_warnings_are_told_and_do_not_stop_it(
    config: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config.changed(dataset=["only one"]).launch()
    assert "warning: 1 task(s), but a batch takes 4" in capsys.readouterr().err


def test_code_that_cannot_travel_is_refused_by_name(config: TrainConfig) -> None:
    with pytest.raises(SourceError, match="a lambda"):
        config.changed(reward=lambda episode: 1.0)


def test_a_misspelt_argument_is_named() -> None:
    with pytest.raises(SpecError) as refused:
        TrainConfig(model="m", datset=["x"])
    assert refused.value.message == "TrainConfig has no field 'datset'"
    assert refused.value.fix == "did you mean 'dataset'?"


def test_set_values_are_the_users_and_survive_further_changes(config: TrainConfig) -> None:
    changed = apply_sets(config, ["recipe.group_size=8"]).changed(tags=("second",))
    origins = prepare(changed).plan.origins
    assert origins["recipe.group_size"] == "user"
    assert isinstance(changed.dataset, RowsDataset)
    assert changed.dataset.rows == config.dataset.rows  # type: ignore[union-attr]


def test_a_definition_is_relative_to_the_file_it_is_written_in(
    tmp_path: Path, model: str, seams: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tasks.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n' * 3)
    (folder / "defines_a_run.py").write_text(
        "from training_gym import TrainConfig\n"
        "def reward(episode): return float(len(episode.completion))\n"
        f"config = TrainConfig(model={model!r}, dataset='tasks.jsonl', reward=reward)\n"
        "run = config.launch()\n"
        "print('not reached', run.wait())\n"
    )
    config = load_definition(f"{folder}/defines_a_run.py:config")
    assert seams.platform.jobs == {}
    run = config.launch()
    with tarfile.open(run.path / "source.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["defines_a_run.py", "tasks.jsonl"]


def test_secrets_travel_by_name_only(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("MY_API_KEY", "the-value-of-it")
    run = config.changed(secrets=("MY_API_KEY",)).launch()
    job = Job.read(read_document(run.path / "attempts" / "1" / "job.json"))
    assert job.secrets == ("MY_API_KEY",)
    for file in run.path.rglob("*"):
        assert not file.is_file() or b"the-value-of-it" not in file.read_bytes()
