"""The caller's side of one reward process: start, call, kill. Blocking; one thread at a time.

Only `kill` and `close` may be called from another thread.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from training_gym.rewards import supervision
from training_gym.rewards.channel import receive_frame, send_frame
from training_gym.spec.code import INSIDE_JOB
from training_gym.spec.errors import RewardError

_LONGEST_LINE = 10_000
"""Bytes of a printed line that are passed on at once."""

AHEAD_BYTES = 64 * 1024
"""Of requests that a worker has not answered, sent to it at once; one may be longer."""

_LOOK_S = 0.2
"""Seconds between looks at whether a silent worker still lives."""


class CallTimeout(Exception):
    """The call took too long; the worker was killed."""


class WorkerDied(Exception):
    """The worker ended during the call; says how."""


Answer = list[dict[str, Any]] | CallTimeout | WorkerDied
"""Judgements for a request, or why there are none."""


class RewardProcess:
    """A worker that is started when first needed and replaced when it is gone."""

    def __init__(
        self,
        hello: dict[str, Any],
        say: Callable[[str], None] | None = None,
        *,
        import_timeout_s: float,
    ) -> None:
        """`hello` names the rewards and where to find them.

        `say` receives each line that the user's code prints, from a thread of its own; None: it
        goes to this process's stderr. `import_timeout_s` is what a worker has to start and import
        the user's code.
        """
        self._hello = json.dumps(hello).encode()
        self._import_timeout_s = import_timeout_s
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._closed = False
        self._busy = threading.Lock()
        self.functions: list[dict[str, bool]] = []
        """What the worker says of each reward: `is_group`, `is_async`."""
        self.import_s = 0.0
        """What the newest worker took to start and import."""

    def start(self) -> None:
        """Start the worker unless it runs; raises `RewardError` if a reward cannot be loaded."""
        with self._busy:
            self._ensure_started()

    def call_each(
        self, payloads: Sequence[bytes], timeout_s: float, given_up: threading.Event
    ) -> list[Answer]:
        """What each request came to, one after another.

        The next request lies at the worker before it has answered the last, so that it never waits
        for us. One that took too long or killed the worker costs no other: a new worker takes up
        the rest. Once `given_up` is set, requests end as if the worker had died.
        """
        answers: list[Answer] = []
        with self._busy:
            while len(answers) < len(payloads):
                try:
                    if given_up.is_set():
                        raise WorkerDied("was closed")
                    self._ensure_started()
                    self._serve(payloads[len(answers) :], timeout_s, given_up, answers)
                except (CallTimeout, WorkerDied) as failure:
                    answers.append(failure)
        return answers

    def kill(self) -> None:
        """End the worker and everything it has started at once."""
        process = self._process
        if process is not None:
            supervision.end(process.pid)

    def close(self) -> None:
        """Kill the worker and start no other."""
        self._closed = True
        self.kill()

    def reap(self) -> None:
        """Free what is left of the worker, once no thread uses it."""
        self._end()

    def _ensure_started(self) -> None:
        if self._closed:
            raise WorkerDied("was closed")
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        started = time.monotonic()
        self._spawn()
        try:
            answer = self._exchange(self._hello, self._import_timeout_s)
        except CallTimeout:
            raise RewardError(
                "importing the rewards took longer than "
                f"reward_import_timeout_s = {self._import_timeout_s:g}",
                fix="move slow work out of the top level of the file, or raise "
                "recipe.reward_import_timeout_s",
            ) from None
        except WorkerDied as error:
            raise RewardError(
                f"the process that imports the rewards {error}",
                fix="import the file by itself to see what ends it",
            ) from None
        if isinstance(answer, dict):
            self._end()
            raise RewardError(answer["error"]["message"], fix=answer["error"]["fix"])
        self.functions, self.import_s = answer, time.monotonic() - started

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "training_gym.rewards.worker",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if self._say is None else subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, INSIDE_JOB: "1"},
            )
        if self._say is not None:
            threading.Thread(target=_pass_on, args=(self._process, self._say), daemon=True).start()
        self._channel = ours
        if self._closed:
            self.kill()

    def _serve(
        self,
        payloads: Sequence[bytes],
        timeout_s: float,
        given_up: threading.Event,
        answers: list[Answer],
    ) -> None:
        """Append the answers until one is a failure, which is raised."""
        sent = ahead = 0
        for number, payload in enumerate(payloads):
            if given_up.is_set():
                raise WorkerDied(self._end())
            # A worker that computes reads nothing: what lies ahead has to fit into the socket.
            while sent < len(payloads) and ahead + len(payloads[sent]) <= AHEAD_BYTES:
                self._send(payloads[sent], timeout_s)
                ahead += len(payloads[sent])
                sent += 1
            if sent == number:
                self._send(payload, timeout_s)
                ahead += len(payload)
                sent += 1
            answers.append(self._receive(timeout_s))
            ahead -= len(payload)

    def _exchange(self, payload: bytes, timeout_s: float) -> Any:
        """One frame there, one back."""
        deadline = time.monotonic() + timeout_s
        self._send(payload, timeout_s)
        return self._receive(deadline - time.monotonic())

    def _send(self, payload: bytes, timeout_s: float) -> None:
        assert self._channel is not None
        try:
            self._channel.settimeout(timeout_s)
            send_frame(self._channel, payload)
        except TimeoutError:
            self._end()
            raise CallTimeout from None
        except OSError:
            raise WorkerDied(self._end(by_itself=True)) from None

    def _receive(self, timeout_s: float) -> Any:
        channel, deadline = self._channel, time.monotonic() + timeout_s
        assert channel is not None

        def receive(channel: socket.socket, size: int) -> bytes:
            while True:
                left = deadline - time.monotonic()
                channel.settimeout(max(min(left, _LOOK_S), 0.001))
                try:
                    return channel.recv(size)
                except TimeoutError:
                    # A child of the worker may hold the socket open after the worker's death.
                    if self._process is None or self._process.poll() is not None:
                        return b""
                    if left <= 0:
                        raise

        try:
            frame = receive_frame(channel, receive)
        except TimeoutError:
            self._end()
            raise CallTimeout from None
        except OSError:
            frame = None
        if frame is None:
            raise WorkerDied(self._end(by_itself=True))
        return json.loads(frame)

    def _end(self, *, by_itself: bool = False) -> str:
        """Kill what is left of the worker, reap it, and say how it ended."""
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            channel.close()
        if process is None:
            return "ended"
        code = _wait_briefly(process) if by_itself else None
        supervision.end(process.pid)
        process.wait()
        return _how(code)


def _pass_on(process: subprocess.Popen[bytes], say: Callable[[str], None]) -> None:
    """Read what a worker prints until it, and whatever it has started, is gone."""
    assert process.stderr is not None
    with process.stderr as lines:
        for line in iter(lambda: lines.readline(_LONGEST_LINE), b""):
            say(line.decode("utf-8", "backslashreplace").rstrip("\n"))


def _wait_briefly(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process that has closed its connection and should be about to end."""
    try:
        return process.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return None


def _how(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"ended its process with exit code {code}"
    name = signal.Signals(-code).name
    hint = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
    return f"ended its process by {name}{hint}"
