"""Process 1 of a sandbox: takes requests from the host, runs them, leaves nothing behind.

It runs as the sandbox's user, under its filter, without capabilities, and cannot be traced by what
it runs. It reads nothing from the sandbox's files and never blocks on anything a command does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.inside.command import ImportState, become_command
from training_gym.sandboxes.zygote.inside.loop import Loop
from training_gym.sandboxes.zygote.inside.process import Running, begin
from training_gym.sandboxes.zygote.inside.sweep import Sweep
from training_gym.sandboxes.zygote.inside.tunnel import Tunnels

_BACKLOG = 1 << 20
"""Unsent bytes towards the host above which nothing more is read from commands."""


class Init:
    """The state of process 1."""

    def __init__(
        self,
        link: socket.socket,
        imports: ImportState,
        sweep: Sweep,
        *,
        confine: Callable[[], None] | None = None,
    ) -> None:
        """`link` leads to the host; `confine` is what each command does to itself first."""
        self._confine = confine or (lambda: None)
        self._link = link
        self._imports = imports
        self._sweep = sweep
        self._loop = Loop()
        self._parser = frames.Parser()
        self._unsent = bytearray()
        self._running: dict[int, Running] = {}
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

    def serve(self) -> NoReturn:
        """Until the host hangs up; process 1 then ends, and with it all others."""
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # The kernel shields process 1 from its own children, except where it has a handler.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Orphans end without a descriptor of their own: the signal is what wakes the loop.
        wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        self._loop.on_readable(wake_reader, lambda: self._reap(wake_reader))
        self._link.setblocking(False)
        self._loop.on_readable(self._link.fileno(), self._receive)
        while True:
            self._loop.turn()

    def send(self, data: bytes) -> None:
        """Queue a frame for the host."""
        if not self._unsent:
            try:
                sent = self._link.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._sweep.end_all()
                os._exit(0)
            if sent == len(data):
                return
            data = data[sent:]
            self._loop.on_writable(self._link.fileno(), self._flush)
        self._unsent += data
        if self.is_congested():
            self._pause(True)

    def is_congested(self) -> bool:
        """Whether the host is too slow for more."""
        return len(self._unsent) > _BACKLOG

    def _flush(self) -> None:
        was_congested = self.is_congested()
        try:
            del self._unsent[: self._link.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._sweep.end_all()
            os._exit(0)
        if was_congested and not self.is_congested():
            self._pause(False)
        if not self._unsent:
            self._loop.on_writable(self._link.fileno(), None)

    def _pause(self, yes: bool) -> None:
        for running in self._running.values():
            running.pause(yes)
        self._tunnels.pause(yes)

    def _receive(self) -> None:
        try:
            data = self._link.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # Where there is no namespace that dies with it, what it ran would go on.
            self._sweep.end_all()
            os._exit(0)
        for kind, channel, payload in self._parser.feed(data):
            self._handlers[kind](channel, payload)

    # ------------------------------------------------------------ commands

    def _run(self, channel: int, payload: bytes) -> None:
        request = json.loads(payload)
        background = bool(request.get("background"))

        def child(stdio: tuple[int, int, int]) -> None:
            become = partial(become_command, request, stdio, self._imports, self._confine)
            if background:
                self._sweep.supervise(become)
            become()

        try:
            running = begin(self._loop, channel, request, child, self.send, self._ended)
        except OSError as error:
            told = {"error": f"no process could be started: {error.strerror}"}
            self.send(frames.document(frames.EXIT, channel, told))
            return
        self._running[channel] = running
        if not running.is_foreground:
            self._sweep.keep(running.pid)

    def _stdin(self, channel: int, payload: bytes) -> None:
        if channel in self._running:
            self._running[channel].feed(payload)

    def _kill(self, channel: int, payload: bytes) -> None:
        if channel in self._running:
            self._running[channel].end(payload.decode() or None)

    def _ended(self, running: Running, told: dict[str, Any]) -> None:
        """A command's own process is gone: end what it left, then tell the host."""
        del self._running[running.channel]
        self._sweep.release(running.pid)
        began = time.monotonic()
        leftovers, clean = 0, True
        if not any(other.is_foreground for other in self._running.values()):
            leftovers, clean = self._sweep.end_leftovers()
        told.update(leftovers=leftovers, clean=clean, sweep_s=time.monotonic() - began)
        self.send(frames.document(frames.EXIT, running.channel, told))

    def _reap(self, wake_reader: int) -> None:
        """Collect orphans; the children that are commands are waited for where they are known."""
        with contextlib.suppress(BlockingIOError):
            os.read(wake_reader, 4096)
        own = {running.pid for running in self._running.values()}
        self._sweep.reap_orphans(own)
