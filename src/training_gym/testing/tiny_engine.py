"""An engine that trains nothing: counts steps, obeys signals, fails on demand.

`python -m training_gym.testing.tiny_engine` speaks the protocol between engine and job runner with
the standard library alone, for tests of platforms, launchers and views. It resumes at the step it
had reached.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RUN = Path(os.environ.get("TRAINING_GYM_RUN", "."))
ATTEMPT = os.environ.get("TRAINING_GYM_ATTEMPT", "1")
SLEEP = "import time; time.sleep(600)"


def main() -> int:
    """Count to `--steps`; returns the exit code."""
    given = _arguments()
    state = _State()
    _begin(given)
    _obey_signals(state, ignore=given.ignore_signals)
    (_folder() / "ready").touch()
    while state.step < given.steps and not state.stopping:
        time.sleep(given.step_s)
        state.step += 1
        _write(RUN / "tiny-state.json", {"step": state.step})
        _say(f"step {state.step} of attempt {ATTEMPT}")
        if int(ATTEMPT) <= given.crash_attempts:
            raise RuntimeError("told to crash")
    if given.user_error:
        error = {"type": "DataError", "message": "no rows", "fix": "add some", "exit_code": 3}
        _write(_folder() / "error.json", error)
        return 3
    status = "stopped" if state.stopping else "completed"
    _write(_folder() / "summary.json", {"status": status, "steps": state.step})
    return 0


class _State:
    """What signal handlers change."""

    def __init__(self) -> None:
        known = RUN / "tiny-state.json"
        self.step: int = json.loads(known.read_text())["step"] if known.exists() else 0
        self.stopping = False


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--step-s", type=float, default=0.01, help="seconds a step takes")
    parser.add_argument("--crash-attempts", type=int, default=0, help="crash in the first so many")
    parser.add_argument("--user-error", action="store_true", help="end with an error of the user")
    parser.add_argument("--ignore-signals", action="store_true", help="all that can be ignored")
    parser.add_argument("--spawn", action="store_true", help="start processes and leave them")
    parser.add_argument("--import-module", help="a module of the user's source")
    parser.add_argument("--look-for", nargs="*", default=[], help="variables whose hash to say")
    return parser.parse_args()


def _begin(given: argparse.Namespace) -> None:
    pids = [os.getpid()]
    if given.spawn:
        for new_session in (False, True):
            child = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=new_session)
            child.returncode = 0  # nobody will wait for it
            pids.append(child.pid)
    _write(_folder() / "pids.json", {"pids": pids})
    _say(f"attempt {ATTEMPT} begins")
    if given.import_module:
        _say(f"imported {importlib.import_module(given.import_module).__file__}")
    for name in given.look_for:
        value = os.environ.get(name)
        digest = "unset" if value is None else hashlib.sha256(value.encode()).hexdigest()
        _say(f"{name} is {digest}")


def _obey_signals(state: _State, *, ignore: bool) -> None:
    if ignore:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        return

    def stop(*_: Any) -> None:
        state.stopping = True

    def checkpoint(*_: Any) -> None:
        _say(f"checkpoint at step {state.step}")

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGUSR1, checkpoint)


def _folder() -> Path:
    return RUN / "attempts" / ATTEMPT


def _write(path: Path, document: dict[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(document))
    draft.replace(path)


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # also from a signal handler, where print may not


if __name__ == "__main__":
    sys.exit(main())
