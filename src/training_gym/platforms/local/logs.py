"""What a job's runner and engine said: the attempts' `output.log`, one after another."""

from __future__ import annotations

from training_gym.platforms.local.submissions import first_attempt, run_of
from training_gym.records.results import read_exit
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.errors import PlatformError
from training_gym.spec.job import JobRef, LogChunk

_CHUNK_BYTES = 1 << 20


def read_logs(ref: JobRef, cursor: str) -> LogChunk:
    """Whole lines after the cursor, which is `<attempt>:<byte>`; at most a mebibyte."""
    run = run_of(ref)
    attempt, offset = _parse(cursor) if cursor else (first_attempt(ref), 0)
    ending = read_exit(run, attempt)  # looked at first: what follows it is complete
    data = _read(run, attempt, offset)
    if not data and ending is not None and ending.next_attempt is not None:
        attempt, offset = ending.next_attempt, 0
        data = _read(run, attempt, offset)
    whole = data[: data.rfind(b"\n") + 1]
    if not whole and (len(data) == _CHUNK_BYTES or ending is not None):
        whole = data  # an endless line, or one that will get no end
    return LogChunk(text=whole.decode(errors="replace"), cursor=f"{attempt}:{offset + len(whole)}")


def _parse(cursor: str) -> tuple[int, int]:
    attempt, _, offset = cursor.partition(":")
    if not (attempt.isdecimal() and offset.isdecimal()):
        raise PlatformError(
            f"{cursor!r:.40} is not a cursor", fix="pass the cursor of the chunk before, or none"
        )
    return int(attempt), int(offset)


def _read(run: RunDirectory, attempt: int, offset: int) -> bytes:
    try:
        with open(run.attempt(attempt) / "output.log", "rb") as file:
            file.seek(offset)
            return file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return b""
