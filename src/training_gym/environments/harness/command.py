"""A harness's command on this machine: in a folder and a process group of its own, ended with it.

It sees few of our variables, since those of a run hold secrets. For harnesses one trusts as one's
own code; one that runs what a model wrote belongs in a sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training_gym.spec.errors import EnvironmentFailure

HANDED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "SYSTEMROOT")
"""Variables that a command gets from ours."""

KEPT_BYTES = 200_000
"""Of what a command prints, its end is kept."""


@dataclass(frozen=True)
class Ended:
    """How a harness ended."""

    exit_code: int
    output: str
    """What it printed, both streams, the end of it."""


@contextlib.contextmanager
def folder_with(files: Mapping[str, str]) -> Iterator[Path]:
    """A folder with these files, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="training-gym-harness-") as name:
        folder = Path(name)
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        yield folder


async def run_command(
    argv: Sequence[str], *, env: Mapping[str, str], stdin: str, folder: Path
) -> Ended:
    """Run to the end; cancelled, everything it started is killed with it."""
    handed = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**handed, **env},
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentFailure(
            f"the harness {argv[0]!r} cannot be started: {error.strerror}",
            fix="check the command; it runs in a folder of its own, so give absolute paths",
        ) from error
    try:
        output = await _talk(process, stdin.encode("utf-8", "replace"))
        return Ended(await process.wait(), output.decode("utf-8", "replace"))
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _talk(process: asyncio.subprocess.Process, given: bytes) -> bytes:
    """Hand over stdin and read on until the end, keeping the last of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    feeding = asyncio.create_task(_feed(process.stdin, given))
    kept = bytearray()
    try:
        while piece := await process.stdout.read(1 << 16):
            kept += piece
            del kept[:-KEPT_BYTES]
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    return bytes(kept)


async def _feed(stream: asyncio.StreamWriter, given: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(given)
        await stream.drain()
        stream.close()
        await stream.wait_closed()
