import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_numbers = itertools.count()


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def two_lines(self) -> str:
        """The error it ended with: what is wrong and what to do, and no traceback."""
        assert "Traceback" not in self.err, self.err
        *_, error, fix = self.err.splitlines()
        assert error.startswith("error: "), self.err
        assert fix.startswith("fix: "), self.err
        assert len(fix) > len("fix: ")
        return f"{error}\n{fix}"


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def environment(home):
    """Of every process that is started: one thread, and a home of its own."""
    return {**os.environ, "TRAINING_GYM_HOME": str(home), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def training_gym(environment):
    """Run the command line in a process of its own."""

    def run(*arguments, **options):
        done = subprocess.run(
            [sys.executable, "-m", "training_gym.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=240,
            check=False,
            **options,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def tiny(home):
    from training_gym.models.weights.tiny import tiny_model

    return tiny_model(home / "tiny")


DEFINITION = """
import math
import os
import time

from training_gym import Recipe, TrainConfig

IN_JOB = "TRAINING_GYM_RUN" in os.environ
ROWS = [{{"prompt": f"Say {{n}}.", "answer": str(n)}} for n in range(8)]


def varied(episode):
    return 0.5 + len(set(episode.completion)) / 100


def reward(episode):
    {reward}


config = TrainConfig(
    name="breaking",
    model={model!r},
    dataset={dataset},
    reward=reward,
    recipe=Recipe(
        num_steps=2,
        prompts_per_batch=2,
        group_size=4,
        max_response_tokens=4,
        engine={{"threads": 1}},
    ),
    {more}
)
"""


@pytest.fixture(scope="session")
def define(tmp_path_factory, tiny):
    """Write a definition file, under a name that no other has, and return its path."""

    def write(*, reward="return varied(episode)", dataset="ROWS", model=tiny, more=""):
        file = tmp_path_factory.mktemp("definition") / f"breaking_{next(_numbers)}.py"
        text = DEFINITION.format(reward=reward, dataset=dataset, model=str(model), more=more)
        file.write_text(text)
        return file

    return write


@pytest.fixture
def command(home, monkeypatch, capfd):
    """Run the command line in this process: the same code, without another import of everything."""
    monkeypatch.setenv("TRAINING_GYM_HOME", str(home))

    def run(*arguments):
        from training_gym.cli.entry import run

        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run


@dataclass(frozen=True)
class Trained:
    """Everything a run recorded, without clocks and attempts."""

    metrics: list
    episodes: list
    evaluations: list
    weights: bytes
    optimizer: bytes


CLOCKS = ("seconds", "per_second", "peak_memory_gib")


@pytest.fixture
def trained():
    """What a run directory holds, to be compared with another."""

    def read(directory):
        from training_gym.records.checkpoints import list_checkpoints
        from training_gym.records.readers import read_episodes, read_stream

        last = list_checkpoints(directory)[-1]
        return Trained(
            metrics=[
                (r["batch"], r["optimizer_step"], _timeless(r["values"]))
                for r in read_stream(directory, "metrics")
            ],
            episodes=[e.changed(duration_s=0.0) for e in read_episodes(directory)],
            evaluations=[
                (r["batch"], r["name"], r["phase"], r["task_means"], r["low"], r["high"])
                for r in read_stream(directory, "evaluations")
            ],
            weights=(last.folder / "model.safetensors").read_bytes(),
            optimizer=(last.resume / "trainer.pt").read_bytes(),
        )

    return read


def _timeless(values):
    return {name: value for name, value in values.items() if not name.endswith(CLOCKS)}


@dataclass(frozen=True)
class Played:
    """What the engine left of a run that it trained in this process."""

    code: int
    run: object
    error: dict
    summary: dict


@pytest.fixture(scope="session")
def engine():
    """Run the engine of an attempt in this process, as a job would, without the job around it."""

    def train(directory, attempt):
        import torch

        from training_gym.engines.local import inside

        folder = directory.attempt(attempt)
        folder.mkdir(parents=True)
        with pytest.MonkeyPatch.context() as job:
            job.setenv("TRAINING_GYM_RUN", str(directory.path))
            job.setenv("TRAINING_GYM_ATTEMPT", str(attempt))
            code = inside.main()
        torch.use_deterministic_algorithms(False)
        left = [folder / name for name in ("error.json", "summary.json")]
        error, summary = (json.loads(p.read_text()) if p.exists() else {} for p in left)
        return Played(code, directory, error, summary)

    return train


@pytest.fixture(scope="session")
def prepared_run(home):
    """Check and plan a definition; its run directory, as a job finds it."""

    def prepare_run(file, *sets):
        from training_gym.jobs.facts import gather_facts
        from training_gym.jobs.source import unpack
        from training_gym.launch import apply_sets, load_definition, prepare
        from training_gym.records.run_directory import RunDirectory

        with pytest.MonkeyPatch.context() as here:
            here.setenv("TRAINING_GYM_HOME", str(home))
            prepared = prepare(apply_sets(load_definition(str(file)), sets))
        path = home / "runs" / prepared.manifest.run_id
        directory = RunDirectory.create(path, prepared.manifest)
        directory.write_plan(prepared.plan)
        directory.write_environment(gather_facts(prepared.plan.machine, None))
        directory.source_archive.write_bytes(prepared.archive)
        unpack(prepared.archive, directory.source, prepared.manifest.source_sha256)
        return directory

    return prepare_run


@pytest.fixture(scope="session")
def play(prepared_run, engine):
    """Check a definition, then run its engine here."""

    def run(file, *sets):
        return engine(prepared_run(file, *sets), 1)

    return run


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of the given size; `remount` changes its options."""
    with contextlib.ExitStack() as mounted:

        def make(megabytes):
            place = tmp_path / "disk"
            place.mkdir()
            options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
            if shutil.which("mount") is None or _refused(["mount", *options]):
                pytest.skip("needs the right to mount a file system")
            mounted.callback(subprocess.run, ["umount", "-l", str(place)], check=True)
            return place

        yield make


def _refused(arguments: list[str]) -> bool:
    return subprocess.run(arguments, capture_output=True, check=False).returncode != 0


@pytest.fixture
def remount_read_only():
    def remount(place: Path) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)

    return remount
