"""Process 1 of a sandbox: takes requests from the host, runs them, leaves nothing behind.

It runs as the sandbox's user, under its filter, without capabilities, and cannot be traced by what
it runs. It reads nothing from the sandbox's files and never blocks on anything a command does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.inside.ahead import Ahead, Child, hear
from training_gym.sandboxes.zygote.inside.command import (
    ORDER,
    ImportState,
    become_command,
    prepare,
)
from training_gym.sandboxes.zygote.inside.loop import Loop
from training_gym.sandboxes.zygote.inside.process import Running
from training_gym.sandboxes.zygote.inside.sweep import Sweep
from training_gym.sandboxes.zygote.inside.tunnel import Tunnels

LINK = 62
"""Descriptor that leads to the host."""
WAKE = (60, 61)
"""Ends of the pipe that a signal writes to: orphans end without a descriptor of their own."""
_PAUSE_S = 0.003
"""After a command, until the next one's process is forked: many a sandbox ends right here."""
_BACKLOG = 1 << 20
"""Unsent bytes towards the host above which nothing more is read from commands."""


def open_wake() -> None:
    """Let the end of children wake the loop. Forks inherit all of it but the pipe."""
    for source, target in zip(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC), WAKE, strict=True):
        os.dup2(source, target, inheritable=False)
        os.close(source)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # The kernel shields process 1 from its own children, except where it has a handler.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(WAKE[1], warn_on_full_buffer=False)


class Init:
    """The state of process 1. Made before the process is, so that it need not be made in each."""

    def __init__(
        self,
        imports: ImportState,
        sweep: Sweep,
        *,
        confine: Callable[[], None] | None = None,
        forks_ahead: bool = True,
    ) -> None:
        """Descriptors `LINK` and `WAKE` are looked at from `serve` on.

        Args:
            imports: How commands find modules.
            sweep: Ends what they leave behind.
            confine: What each command does to itself first.
            forks_ahead: Whether the process of the next command is forked before it is needed.
        """
        self._confine = confine or (lambda: None)
        self._imports = imports
        self.sweep = sweep
        self._loop = Loop()
        self._parser = frames.Parser()
        self._unsent = bytearray()
        self._running: dict[int, Running] = {}
        self._ahead = Ahead(self._loop, self._become)
        self._forks_ahead = forks_ahead
        self._tunnels = Tunnels(self._loop, self.send, self.is_congested)
        self._handlers: dict[int, Callable[[int, bytes], None]] = {
            frames.RUN: self._run,
            frames.STDIN: self._stdin,
            frames.KILL: self._kill,
            frames.LISTEN: self._tunnels.listen,
            frames.DATA: self._tunnels.data,
            frames.CLOSE: self._tunnels.close,
            frames.TOOK: self._tunnels.took,
        }
        self._loop.on_readable(WAKE[0], self._reap)
        self._loop.on_readable(LINK, self._receive)

    def serve(self) -> NoReturn:
        """Until the host hangs up; process 1 then ends, and with it all others."""
        self._fork_ahead()
        while True:
            self.turn()

    def turn(self) -> None:
        """Wait for something, and handle it."""
        self._loop.turn()

    def _fork_ahead(self) -> None:
        if self._forks_ahead and not self._running:
            self._ahead.fork()

    def send(self, data: bytes) -> None:
        """Queue a frame for the host."""
        if not self._unsent:
            try:
                sent = os.write(LINK, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.sweep.end_all()
                os._exit(0)
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.on_writable(LINK, self._flush)
        self._unsent += data
        if self.is_congested():
            self._pause(True)

    def is_congested(self) -> bool:
        """Whether the host is too slow for more."""
        return len(self._unsent) > _BACKLOG

    def _flush(self) -> None:
        was_congested = self.is_congested()
        try:
            del self._unsent[: os.write(LINK, self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.sweep.end_all()
            os._exit(0)
        if was_congested and not self.is_congested():
            self._pause(False)
        if not self._unsent:
            self._loop.on_writable(LINK, None)

    def _pause(self, yes: bool) -> None:
        for running in self._running.values():
            running.pause(yes)
        self._tunnels.pause(yes)

    def _receive(self) -> None:
        try:
            data = os.read(LINK, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # Where there is no namespace that dies with it, what it ran would go on.
            self.sweep.end_all()
            os._exit(0)
        for kind, channel, payload in self._parser.feed(data):
            self._handlers[kind](channel, payload)

    # ------------------------------------------------------------ commands

    def _run(self, channel: int, payload: bytes) -> None:
        request = json.loads(payload)
        try:
            if request.get("background"):
                self._ahead.dismiss()  # what is below a supervisor, it has forked itself
            child = self._ahead.take(payload) or Child.fork(self._become, payload)
        except OSError as error:
            told = {"error": f"no process could be started: {error.strerror}"}
            self.send(frames.document(frames.EXIT, channel, told))
            return
        running = Running(self._loop, channel, request, child, self.send, self._ended)
        self._running[channel] = running
        if not running.is_foreground:
            self.sweep.keep(running.pid)

    def _become(self, stdio: tuple[int, int, int], order: int, payload: bytes) -> None:
        if order >= 0:
            prepare(stdio, order, self._confine)
            become_command(json.loads(hear(ORDER)), self._imports)
        request = json.loads(payload)

        def become() -> NoReturn:
            prepare(stdio, -1, self._confine)
            become_command(request, self._imports)

        if request.get("background"):
            self.sweep.supervise(become)
        become()

    def _stdin(self, channel: int, payload: bytes) -> None:
        if channel in self._running:
            self._running[channel].feed(payload)

    def _kill(self, channel: int, payload: bytes) -> None:
        if channel in self._running:
            self._running[channel].end(payload.decode() or None)

    def _ended(self, running: Running, told: dict[str, Any]) -> None:
        """A command's own process is gone: end what it left, then tell the host."""
        del self._running[running.channel]
        self.sweep.release(running.pid)
        began = time.monotonic()
        leftovers, clean = 0, True
        if not any(other.is_foreground for other in self._running.values()):
            leftovers, clean = self.sweep.end_leftovers()
        told.update(leftovers=leftovers, clean=clean, sweep_s=time.monotonic() - began)
        self.send(frames.document(frames.EXIT, running.channel, told))
        self._loop.at("ahead", time.monotonic() + _PAUSE_S, self._fork_ahead)

    def _reap(self) -> None:
        """Collect orphans; the children that are commands are waited for where they are known."""
        with contextlib.suppress(BlockingIOError):
            os.read(WAKE[0], 4096)
        own = {running.pid for running in self._running.values()} | self._ahead.pids
        self.sweep.reap_orphans(own)
