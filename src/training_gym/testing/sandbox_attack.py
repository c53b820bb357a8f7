"""One attack on a sandbox: what it is, the world it is let loose on, and how it is tried."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training_gym.spec.sandboxes import (
    ExecRequest,
    ExecResult,
    Guarantee,
    Resources,
    SandboxDied,
    SandboxError,
    SandboxProvider,
    SandboxSpec,
)

SPEC = SandboxSpec(
    resources=Resources(memory_mb=256, disk_mb=32, files=2000, processes=48, cpus=1.0)
)
"""Small enough that bombs end soon."""
_TOKEN = "planted-secret-5a1"


@dataclass(frozen=True)
class World:
    """What lies around a sandbox to be attacked."""

    folder: str
    """Writable by everyone; holds `secret`, and the socket `listener`."""
    victim: int
    """A process of the host."""
    port: int
    """A service on the host's loopback that tells the token."""
    abstract: str
    """The same on an abstract Unix socket."""


@dataclass(frozen=True)
class Attack:
    """One thing that must fail."""

    name: str
    guarantee: Guarantee
    source: str
    """Python; sees `world` and the function `breach`."""
    bare: bool = True
    """Whether it can be shown to succeed without a sandbox."""
    ends: tuple[str, ...] = ()
    """Failures of the command, one of which it must end with; empty: it may end as it likes."""


def _prelude(world: World) -> str:
    return (
        f"import ctypes, errno, os, socket, sys, time\ntoken = {_TOKEN!r}\n"
        f"class world: folder, victim, port, abstract = {world.folder!r}, {world.victim},"
        f" {world.port}, {world.abstract!r}\n"
        "def breach(*what): print('BREACH', *what, flush=True)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
    )


@contextmanager
def planted_world() -> Iterator[World]:
    """Something to attack, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="attacked-") as folder, _services(folder) as services:
        os.chmod(folder, 0o777)
        secret = Path(folder) / "secret"
        secret.write_text(_TOKEN, encoding="utf-8")
        secret.chmod(0o666)
        victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        try:
            yield World(folder, victim.pid, *services)
        finally:
            victim.kill()
            victim.wait()


@contextmanager
def _services(folder: str) -> Iterator[tuple[int, str]]:
    abstract = f"attacked-{os.getpid()}-{os.path.basename(folder)}"
    tcp = socket.create_server(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    local.bind("\0" + abstract)
    named = socket.socket(socket.AF_UNIX)
    named.bind(f"{folder}/listener")
    os.chmod(f"{folder}/listener", 0o777)
    servers = [tcp, local, named]

    def answer(server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                peer.sendall(_TOKEN.encode())

    for server in servers:
        server.listen()
        threading.Thread(target=answer, args=(server,), daemon=True).start()
    try:
        yield tcp.getsockname()[1], abstract
    finally:
        for server in servers:
            # Unlike close, it wakes the thread that waits in accept.
            server.shutdown(socket.SHUT_RDWR)
            server.close()


def run_bare(attack: Attack, world: World) -> str:
    """What the attack prints without a sandbox."""
    command = [sys.executable, "-c", _prelude(world) + attack.source]
    done = subprocess.run(
        command, cwd=world.folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout


def try_attack(
    attack: Attack, make: Callable[[], SandboxProvider], spec: SandboxSpec | None = None
) -> None:
    """Run one attack in a new sandbox; raises `AssertionError` if it gets anything."""

    async def run() -> None:
        provider = make()
        try:
            with planted_world() as world:
                result = await _attack(attack, world, provider, spec or SPEC)
                assert "BREACH" not in result.text, result.text
                if attack.ends:
                    assert result.failure in attack.ends, result
                else:
                    assert "done" in result.text, (result.text, result.error_text, result.failure)
                assert (Path(world.folder) / "secret").read_text() == _TOKEN
                assert not (Path(world.folder) / "pwned").exists()
                os.kill(world.victim, 0)
            # The machine is as good as before: another sandbox works.
            async with await provider.create(spec or SPEC) as sandbox:
                assert (await sandbox.exec(ExecRequest(argv=("echo", "fine")))).text == "fine\n"
        finally:
            await provider.close()

    asyncio.run(run())


async def _attack(
    attack: Attack, world: World, provider: SandboxProvider, spec: SandboxSpec
) -> ExecResult:
    sandbox = await provider.create(spec)
    source = _prelude(world) + attack.source + "\nprint('done')\n"
    try:
        request = ExecRequest(argv=("python3", "-c", source), timeout_s=20)
        return await sandbox.exec(request)
    except SandboxDied as error:
        raise AssertionError(f"the attack ended the sandbox: {error}") from error
    except SandboxError as error:
        failure = {"OutOfMemory": "out_of_memory"}.get(type(error).__name__)
        return ExecResult(exit_code=-9, failure=failure, tier=sandbox.tier)
    finally:
        await sandbox.destroy()
