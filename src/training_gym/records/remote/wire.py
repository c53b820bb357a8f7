"""What travels: gzipped lines, each a record with the writer it belongs to and its token blocks.

    {"stream": "episodes", "writer": "engine", "record": {…}, "blocks": "<base64>"}

`writer` names the segment's writer, which for spilled records differs from the record's own.
`blocks` are the bytes that the record's references point into, beginning at offset 0.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from training_gym.records.documents import encode, to_bytes
from training_gym.records.run_directory import SCHEMA_VERSION, Stream
from training_gym.spec.errors import RecordsError

BODY_BYTES = 16 * 1024 * 1024
"""Of a request as it arrives."""
PLAIN_BYTES = 64 * 1024 * 1024
"""Of a request unpacked: what a small body could swell to is bounded too."""

_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_STREAMS: tuple[Stream, ...] = get_args(Stream)


class TooLarge(RecordsError):
    """More than is taken in one request."""


@dataclass(frozen=True)
class Item:
    """One record on its way."""

    stream: Stream
    writer: str
    """Of the segment."""
    record: dict[str, Any]
    blocks: bytes = b""

    @property
    def lane(self) -> tuple[str, int, Stream]:
        """Within it, sequence numbers only grow."""
        return self.writer, self.record["attempt"], self.stream

    @property
    def seq(self) -> int:
        """The record's sequence number."""
        return int(self.record["seq"])


def pack(items: list[Item]) -> bytes:
    """The body of a request."""
    lines = []
    for item in items:
        fields: dict[str, Any] = {
            "stream": item.stream,
            "writer": item.writer,
            "record": item.record,
        }
        if item.blocks:
            fields["blocks"] = base64.b64encode(item.blocks).decode()
        lines.append(encode(fields))
    return gzip.compress(to_bytes("\n".join(lines) + "\n"), compresslevel=3)


def unpack(body: bytes) -> list[Item]:
    """The items of a body; raises `RecordsError` for what is too large or not ours."""
    if len(body) > BODY_BYTES:
        raise too_large(len(body), BODY_BYTES)
    return [_item(line) for line in _plain(body).split(b"\n") if line]


def too_large(size: int, limit: int) -> TooLarge:
    """A request that is refused for its size."""
    return TooLarge(
        f"a body of {size} bytes; {limit} are taken", fix="send fewer records in one request"
    )


def moved(record: dict[str, Any], base: int) -> dict[str, Any]:
    """The record with its references to blocks moved by `base` bytes."""
    if not base:
        return record
    changed = dict(record)
    if isinstance(changed.get("columns"), dict):
        changed["columns"] = _shifted(changed["columns"], base)
    if isinstance(changed.get("trajectories"), list):
        changed["trajectories"] = [
            {
                **path,
                **{
                    name: _shifted(path[name], base)
                    for name in ("prompt", "tokens")
                    if isinstance(path.get(name), dict)
                },
            }
            for path in changed["trajectories"]
        ]
    return changed


def references(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every reference to a block that the record holds."""
    if isinstance(record.get("columns"), dict):
        yield record["columns"]
    for path in record.get("trajectories") or ():
        yield from (path[name] for name in ("prompt", "tokens") if isinstance(path.get(name), dict))


def _shifted(reference: dict[str, Any], base: int) -> dict[str, Any]:
    return {**reference, "offset": reference["offset"] + base}


def _plain(body: bytes) -> bytes:
    if not body.startswith(b"\x1f\x8b"):
        return body
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(body, PLAIN_BYTES + 1)
    except zlib.error as error:
        raise RecordsError(f"the body is no gzip: {error}", fix="send it again") from None
    if len(plain) > PLAIN_BYTES:
        raise too_large(len(plain), PLAIN_BYTES)
    if not unpacker.eof:
        raise RecordsError("the body ends in the middle", fix="send it again")
    return plain


def _item(line: bytes) -> Item:
    try:
        fields = json.loads(line)
        record = fields["record"]
        item = Item(
            stream=_STREAMS[_STREAMS.index(fields["stream"])],
            writer=fields["writer"],
            record=record,
            blocks=base64.b64decode(fields.get("blocks", ""), validate=True),
        )
        numbers = [record[name] for name in ("schema", "attempt", "seq")]
        names = (item.writer, record["writer"])
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers)
        plain = all(isinstance(n, str) and _WRITER.fullmatch(n) for n in names)
        moments = all(isinstance(record[n], int | float) for n in ("time", "monotonic"))
        if not (whole and plain and moments) or record["schema"] > SCHEMA_VERSION:
            raise ValueError("the envelope")
        if not all(type(one["offset"]) is int for one in references(record)):
            raise ValueError("a reference")
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error) as error:
        raise RecordsError(
            f"a line is no record: {error}", fix="send what a recorder wrote, unchanged"
        ) from None
    return item
