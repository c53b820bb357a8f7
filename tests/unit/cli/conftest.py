import json
import time
from dataclasses import dataclass

import pytest

from training_gym.cli.entry import run as run_command
from training_gym.cli.schemas import SCHEMAS
from training_gym.records.documents import write_document
from training_gym.records.processes import this_process
from training_gym.records.recorder import Recorder
from training_gym.records.results import Exit, write_exit, write_result
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import Counters, Episode, Score
from training_gym.spec.messages import assistant, user
from training_gym.spec.tasks import Task


@dataclass
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def objects(self):
        """The lines of stdout as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class RunOnDisk:
    """A run made of files; this process plays its job."""

    def __init__(self, home, run_id, num_steps=4, **manifest):
        spec = {"model": "tiny", "recipe": {"num_steps": num_steps, "seed": 3}}
        self.files = RunDirectory.create(
            home / "runs" / run_id,
            Manifest(
                run_id=run_id,
                run=spec,
                origins={"recipe.num_steps": "user", "recipe.seed": "default"},
                **{"created_at": 1.0e9, **manifest},
            ),
        )
        self.id = run_id
        write_document(self.files.attempt(1) / "runner.json", this_process())
        self.recorder = Recorder(self.files, writer="engine", attempt=1)
        self.recorder.attempt_started()
        self.flush()

    def step(self, batch, **values):
        counters = Counters(batch=batch, optimizer_step=batch, policy_version=batch)
        values = {"reward_mean": batch / 10, "sampled_tokens": 100, "step_seconds": 2.0, **values}
        self.recorder.metrics(values, counters)
        self.flush()

    def log(self, *lines):
        for line in lines:
            self.recorder.log(line, source="stdout")
        self.flush()

    def episode(
        self, text, *, task="t", stream="train", step=1, member=0, value=0.5, answer="x", **more
    ):
        episode = Episode(
            id=f"{stream}-{task}-{member}-{step}",
            task=Task(id=task, prompt=(user("Why?"),), answer=answer, split_key=task),
            group=f"{task}-{step}",
            member=member,
            stream=stream,
            messages=(user("Why?"), assistant(text)),
            score=None if value is None else Score(value=value, components={"a": value / 2}),
            counters=Counters(batch=step, optimizer_step=step, policy_version=step),
            **more,
        )
        self.recorder.episode(episode)
        self.flush()
        return episode

    def flush(self):
        self.recorder.flush()

    def end(self, *, summary=None, error=None, exit_code=0, **ending):
        self.recorder.close()
        attempt = self.files.attempt(1)
        if summary is not None:
            write_document(attempt / "summary.json", summary)
        if error is not None:
            write_document(attempt / "error.json", error)
        now = time.time()
        fields = {"attempt": 1, "exit_code": exit_code, "started_at": now - 200, "ended_at": now}
        write_exit(self.files, Exit(**{**fields, **ending}))
        write_result(self.files)
        return self


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("TRAINING_GYM_HOME", str(folder))
    monkeypatch.setenv("COLUMNS", "100")
    return folder


@pytest.fixture
def new_run(home):
    made = []

    def make(run_id="r1", **settings):
        made.append(RunOnDisk(home, run_id, **settings))
        return made[-1]

    yield make
    for run in made:
        run.recorder.close()


@pytest.fixture
def command(home, capsys):
    """Run one command in this process, as the script does; its JSON is held to its schema."""

    def run(*arguments):
        code = run_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        answer = Answer(code, captured.out, captured.err)
        for found in answer.objects if "--json" in arguments else ():
            schema = found["schema"]
            assert found.keys() - {"schema"} == SCHEMAS[schema].keys(), schema
        return answer

    return run
