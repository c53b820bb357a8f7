"""The engine's process: started in a session of its own, ended with everything it started."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from training_gym.jobs.leash import kill_processes
from training_gym.jobs.outputs import Outputs
from training_gym.records.documents import read_document, write_document
from training_gym.records.processes import ProcessIdentity, identify, is_alive
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import EngineError, RecordsError

_LEASH = Path(__file__).with_name("leash.py")


class Leash:
    """Ends the engine if this process dies without doing so (see `jobs.leash`)."""

    def __init__(self, run: RunDirectory) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LEASH), str(run.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def hold(self, group: int) -> None:
        """Name the process group to kill; 0: none."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed it; the runner goes on
            self._process.stdin.write(f"{group}\n")
            self._process.stdin.flush()

    def release(self) -> None:
        """End it: nothing is left to kill."""
        self.hold(0)
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


class EngineProcess:
    """One started engine."""

    def __init__(self, process: subprocess.Popen[bytes], run: RunDirectory, leash: Leash) -> None:
        self._process, self._run, self._leash = process, run, leash

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        run: RunDirectory,
        attempt: int,
        outputs: Outputs,
        leash: Leash,
    ) -> EngineProcess:
        """Raises `EngineError` if the command cannot be started."""
        words = [word.replace("{python}", sys.executable) for word in command]
        words = [word.replace("{run}", str(run.path)) for word in words]
        try:
            process = subprocess.Popen(
                words,
                env=dict(env),
                cwd=run.source if run.source.is_dir() else run.path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(
                f"cannot start {words[0]!r}: {error.strerror}",
                fix="check that the command exists on this machine",
            ) from error
        leash.hold(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        outputs.drain("stdout", process.stdout)
        outputs.drain("stderr", process.stderr)
        _write_identity(run, attempt, process.pid)
        return cls(process, run, leash)

    @property
    def pid(self) -> int:
        """Id of the process, and of its group."""
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None: it runs."""
        return self._process.poll()

    def send(self, name: str) -> None:
        """Send a signal, such as `SIGINT`, to the process itself, not to its group."""
        self._process.send_signal(signal.Signals[name])

    def kill_all(self) -> None:
        """Kill it and everything it started."""
        kill_processes(str(self._run.path), self.pid)

    def clean_up(self) -> None:
        """Once it has ended: kill what it left behind."""
        self.kill_all()
        self._leash.hold(0)


def reap_earlier(run: RunDirectory, attempt: int) -> None:
    """Kill what attempts before this one left running, should their runner and leash be gone."""
    for number in run.attempts():
        path = run.attempt(number) / "engine.json"
        if number >= attempt or not path.exists():
            continue
        earlier = ProcessIdentity.read(read_document(path))
        group = earlier.pid if is_alive(earlier) else 0
        kill_processes(str(run.path), group)


def _write_identity(run: RunDirectory, attempt: int, pid: int) -> None:
    """For `reap_earlier`; a full disk is for the engine to meet and to report."""
    identity = identify(pid)
    if identity is not None:
        with contextlib.suppress(RecordsError):
            write_document(run.attempt(attempt) / "engine.json", identity)
