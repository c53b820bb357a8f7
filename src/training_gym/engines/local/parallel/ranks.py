"""The other processes of a run, as the leading one sees them: asked by name, watched for death.

Messages are pickled over one socket pair each; they come from this program's own processes only.
Answers arrive in any order, told apart by number. A process that dies fails what was asked of it,
and all that is asked of it later.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from multiprocessing import Pipe
from typing import Any, NamedTuple

from training_gym.spec.errors import EngineError

LEADER_FD, RANK = "TRAINING_GYM_LEADER_FD", "TRAINING_GYM_RANK"
"""Environment of the other processes: the socket to the leader, and which of them one is."""

MODULE = "training_gym.engines.local.parallel.follower"

END_WITHIN_S = 10.0


class Call(NamedTuple):
    """What one process asks of another."""

    name: str
    given: tuple[Any, ...]
    number: int


class Answer(NamedTuple):
    """What came of a call: a value, or an error."""

    number: int
    value: Any
    error: Exception | None


Asked = tuple[str, tuple[Any, ...]]
"""The name of what is asked for, and what goes with it."""


class Rank:
    """One other process."""

    def __init__(self, rank: int) -> None:
        """Start it. Its first answer comes when it has loaded the weights."""
        self.rank = rank
        self._connection, theirs = Pipe(duplex=True)
        own = {RANK: str(rank), LEADER_FD: str(theirs.fileno())}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            env=os.environ | own,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the job's processes is the leader's to handle
        )
        theirs.close()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._next = 0
        self._ended = False
        threading.Thread(target=self._read, name=f"rank-{rank}", daemon=True).start()

    def call(self, name: str, *given: Any) -> Future[Any]:
        """Ask for one thing. From any thread."""
        return self.ask((name, given))[0]

    def ask(self, *asked: Asked) -> list[Future[Any]]:
        """Ask for several things, all of them heard at once. From any thread."""
        futures: list[Future[Any]] = [Future() for _ in asked]
        with self._lock:
            first, self._next = self._next, self._next + len(asked)
            self._waiting.update(enumerate(futures, first))
            calls = [Call(name, given, number) for number, (name, given) in enumerate(asked, first)]
            with contextlib.suppress(OSError):  # the reader sees the end, and fails what waits
                self._connection.send(calls)
            if self._ended:
                self._fail_all()
        return futures

    def raise_if_ended(self) -> None:
        """Raise `EngineError` if the process has ended, or does within a few seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_WITHIN_S)
            raise self._epitaph()

    def close(self) -> None:
        """End it: it stops when nobody is at the other end."""
        with contextlib.suppress(OSError):
            self._connection.send([])
        try:
            self._process.wait(timeout=END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._connection.close()

    def _read(self) -> None:
        while True:
            try:
                answer: Answer = self._connection.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                future = self._waiting.pop(answer.number)
            if not future.set_running_or_notify_cancel():
                continue
            if answer.error is None:
                future.set_result(answer.value)
            else:
                future.set_exception(answer.error)
        with self._lock:
            self._ended = True
            self._fail_all()

    def _fail_all(self) -> None:
        """With the lock held."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(self._epitaph())

    def _epitaph(self) -> EngineError:
        status = self._process.poll()
        how = "" if status is None else f" with status {status}"
        return EngineError(
            f"process {self.rank} of engine.data_parallel ended{how} while it was needed",
            fix="read the logs for its last words; killed for memory: lower engine.token_budget "
            "or engine.data_parallel",
        )
