"""One running command as process 1 sees it: pipes, deadline, limits, end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.inside.ahead import Child
from training_gym.sandboxes.zygote.inside.loop import Loop

_PIECE = 1 << 16
Send = Callable[[bytes], None]
Ended = Callable[["Running", dict[str, Any]], None]


class Running:
    """A command between its beginning and its end."""

    def __init__(
        self,
        loop: Loop,
        channel: int,
        request: dict[str, Any],
        child: Child,
        send: Send,
        ended: Ended,
    ) -> None:
        """`child` knows what to run."""
        self.channel = channel
        self.pid = child.pid
        self.background = bool(request.get("background"))
        self.is_foreground = not self.background and not request.get("write")
        """Whether what it leaves behind is to be ended with it."""
        self._loop, self._send, self._ended = loop, send, ended
        self._keep, self._allowed = request["keep"], request["allowed"]
        self._stdin, *outputs = child.stdio
        self._outputs = dict(zip(outputs, (frames.STDOUT, frames.STDERR), strict=True))
        self._written = {frames.STDOUT: 0, frames.STDERR: 0}
        self._open = set(outputs)
        self._pending = bytearray()
        self._stdin_ends = False
        self._failure: str | None = None
        self._began = time.monotonic()
        self._handle = child.handle
        for fd in child.stdio:
            os.set_blocking(fd, False)
        for fd in outputs:
            loop.on_readable(fd, partial(self._read, fd))
        loop.on_readable(self._handle, self._finish)
        loop.at(self, self._began + request["timeout_s"], lambda: self.end("exec_timeout"))

    def feed(self, data: bytes) -> None:
        """More stdin; empty: its end."""
        if self._stdin < 0:
            return
        if data:
            self._pending += data
        else:
            self._stdin_ends = True
        self._write()

    def end(self, failure: str | None) -> None:
        """Kill it."""
        self._failure = self._failure or failure
        # A supervisor ends its tree first; a command itself cannot refuse SIGKILL.
        how = signal.SIGTERM if self.background else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, how)

    def pause(self, yes: bool) -> None:
        """Stop or go on reading its output."""
        for fd in self._open:
            self._loop.on_readable(fd, None if yes else partial(self._read, fd))

    def _write(self) -> None:
        if self._pending:
            try:
                count = os.write(self._stdin, self._pending[:_PIECE])
            except BlockingIOError:
                count = 0
            except OSError:  # it closed its stdin: what is left is nobody's
                count = len(self._pending)
                self._stdin_ends = True
            del self._pending[:count]
            if count:
                self._send(frames.frame(frames.TOOK, self.channel, count.to_bytes(4, "big")))
        if self._pending:
            self._loop.on_writable(self._stdin, self._write)
            return
        self._loop.on_writable(self._stdin, None)
        if self._stdin_ends:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.forget(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    def _read(self, fd: int) -> int:
        """Pass on one piece; returns its length, 0 where nothing came."""
        try:
            data = os.read(fd, _PIECE)
        except BlockingIOError:
            return 0
        if not data:
            self._loop.forget(fd)
            self._open.discard(fd)
            return 0
        kind = self._outputs[fd]
        room = self._keep - self._written[kind]
        self._written[kind] += len(data)
        if room > 0:
            self._send(frames.frame(kind, self.channel, data[:room]))
        if sum(self._written.values()) > self._allowed:
            self.end("output_limit")
        return len(data)

    def _finish(self) -> None:
        _, status, usage = os.wait4(self.pid, 0)
        # Take what lies in the pipes; an orphan that goes on writing is not waited for.
        for fd in list(self._open):
            while self._failure != "output_limit" and self._read(fd):
                pass
        self._close_stdin()
        self._loop.cancel(self)
        for fd in (*self._outputs, self._handle):
            self._loop.forget(fd)
            os.close(fd)
        self._ended(self, self._account(status, usage))

    def _account(self, status: int, usage: resource.struct_rusage) -> dict[str, Any]:
        return {
            "code": os.waitstatus_to_exitcode(status),
            "failure": self._failure,
            "stdout_bytes": self._written[frames.STDOUT],
            "stderr_bytes": self._written[frames.STDERR],
            "duration_s": time.monotonic() - self._began,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_memory_mb": usage.ru_maxrss / 1024,
        }
