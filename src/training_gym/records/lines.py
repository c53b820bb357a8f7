"""One record as one line: the envelope every stream shares, and the files lines go to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training_gym.records.documents import encode, storage_error, to_bytes
from training_gym.records.run_directory import SCHEMA_VERSION, RunDirectory, Stream
from training_gym.records.segments import SegmentWriter
from training_gym.records.tokens import Block, TokenColumns
from training_gym.spec.episodes import Counters, Episode
from training_gym.spec.errors import RecordsError

COUNTERS = ("batch", "optimizer_step", "policy_version")
RESERVED = frozenset({"schema", "writer", "attempt", "seq", "time", "monotonic", *COUNTERS})
"""Names of the envelope, which no field of a record may take."""


@dataclass(frozen=True)
class Envelope:
    """What every record carries."""

    writer: str
    attempt: int
    seq: int
    """Counts all records of one writer in one attempt, over all streams."""
    time: float
    """Seconds since 1970."""
    monotonic: float
    """Seconds of the host's clock that never goes back."""
    counters: Counters

    def around(self, body: str) -> str:
        """The record's JSON; `body` is the JSON object of its own fields."""
        counters = "".join(f',"{name}":{_number(self.counters, name)}' for name in COUNTERS)
        head = (
            f'{{"schema":{SCHEMA_VERSION},"writer":"{self.writer}","attempt":{self.attempt},'
            f'"seq":{self.seq},"time":{self.time:.6f},"monotonic":{self.monotonic:.6f}{counters}'
        )
        return head + ("}" if body == "{}" else "," + body[1:])


@dataclass(frozen=True)
class Record:
    """One thing to remember; an episode becomes part of its line when its tokens are stored."""

    stream: Stream
    seq: int
    text: str
    size: int
    """About how much memory it takes, in bytes."""
    episode: Episode | None = None
    columns: Block | None = None
    """Goes to the sidecar, and the line says where."""


class StreamWriters:
    """One writer's open segments, a file for each stream it has written to."""

    def __init__(self, run: RunDirectory, writer: str, attempt: int) -> None:
        self._run, self._writer, self._attempt = run, writer, attempt
        self._files: dict[Stream, SegmentWriter] = {}
        self._tokens = TokenColumns()

    def write(self, records: list[Record]) -> None:
        """Append records of one stream; raises `OSError`."""
        file = self._file(records[0].stream)
        file.roll_if_full()
        file.write(to_bytes("".join([self._line(record, file) for record in records])))

    def write_each_stream(self, records: list[Record]) -> tuple[RecordsError | None, list[Record]]:
        """Append what can be; returns the first failure and the records it kept from being so."""
        failure: RecordsError | None = None
        unwritten: list[Record] = []
        streams: dict[Stream, list[Record]] = {}
        for record in records:
            streams.setdefault(record.stream, []).append(record)
        for stream, batch in streams.items():
            for part in _parts(batch):
                try:
                    self.write(part)
                except OSError as error:
                    failure = failure or storage_error(error, self._run.streams / stream)
                    unwritten += part
        return failure, unwritten

    def sync(self) -> None:
        """Force all of it onto the disk; raises `RecordsError`."""
        for stream, file in list(self._files.items()):
            try:
                file.sync()
            except OSError as error:
                raise storage_error(error, self._run.streams / stream) from error

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()

    def _file(self, stream: Stream) -> SegmentWriter:
        if stream not in self._files:
            folder = self._run.streams / stream
            self._files[stream] = SegmentWriter(folder, self._writer, self._attempt)
        return self._files[stream]

    def _line(self, record: Record, file: SegmentWriter) -> str:
        if record.columns is not None:
            reference = record.columns.reference(file.write_tokens(record.columns.data))
            return f'{record.text[:-1]},"columns":{encode(reference)}}}\n'
        if record.episode is None:
            return record.text + "\n"
        stored = self._tokens.store(record.episode, file.path, file.write_tokens)
        body = _episode_json(record.episode)
        return f'{record.text[:-1]},"episode":{body},"trajectories":{encode(stored)}}}\n'


def sidecar(segment: Path) -> Path:
    """The token columns beside a segment."""
    return segment.with_suffix(".tok")


def _episode_json(episode: Episode) -> str:
    """The episode without its trajectories, whose tokens lie in the sidecar."""
    try:
        return episode.model_dump_json(exclude={"trajectories"})
    except ValueError:  # half surrogate pairs, which pydantic's JSON cannot hold
        return encode(episode.model_dump(exclude={"trajectories"}))


def _number(counters: Counters, name: str) -> str:
    value = getattr(counters, name)
    return "null" if value is None else str(value)


def _parts(batch: list[Record]) -> list[list[Record]]:
    """Records with tokens one by one, so that their segments roll in time; others together."""
    if batch[0].stream in ("episodes", "tokens"):
        return [[record] for record in batch]
    return [batch[start : start + 1024] for start in range(0, len(batch), 1024)]
