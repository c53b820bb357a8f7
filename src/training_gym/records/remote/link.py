"""Which collector a run's records go to, and by what right: `collector.json` in the run's folder.

Whoever launches a run with `$TRAINING_GYM_COLLECTOR` and its key registers it there. The job never
sees that key: it gets a token with which it may write to this one run, in a file that only its user
can read.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.records.documents import encode, read_document_if_any, storage_error, to_bytes
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.errors import RecordsError

if TYPE_CHECKING:
    import httpx

ADDRESS = "TRAINING_GYM_COLLECTOR"
"""Variable with the collector's address, such as `https://host:7861`."""
KEY = "TRAINING_GYM_COLLECTOR_TOKEN"
"""Variable with the key that registers runs; `training-gym collect` prints it."""
TIMEOUT_S = 30.0


class Unreachable(RecordsError):
    """Nobody answers; what waits is sent later."""


@dataclass(frozen=True)
class Link:
    """A run's way to its collector."""

    url: str
    token: str
    """The run's write token."""

    @classmethod
    def of(cls, run: RunDirectory) -> Link | None:
        """The run's link; None: its records stay where they are."""
        document = read_document_if_any(_path(run))
        return None if document is None else cls(str(document["url"]), str(document["token"]))

    def keep(self, run: RunDirectory) -> None:
        """Write it where the job finds it, for its user's eyes only."""
        path = _path(run)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"url": self.url, "token": self.token}, file)
            os.replace(temporary, path)
        except OSError as error:
            raise storage_error(error, path) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def asked_for(manifest: Manifest, environ: Mapping[str, str]) -> Link | None:
    """Register the run where the environment names a collector; None: it names none.

    Raises `RecordsError` if that collector does not answer or refuses, so that nobody waits for
    records that never come.
    """
    url = environ.get(ADDRESS, "").rstrip("/")
    return register(manifest, url, environ.get(KEY, "")) if url else None


def register(manifest: Manifest, url: str, key: str, *, client: httpx.Client | None = None) -> Link:
    """Make a run known to a collector; raises `RecordsError`."""
    if not url.startswith(("http://", "https://")):
        raise RecordsError(
            f"{url!r:.80} is no address of a collector", fix=f"{ADDRESS}=https://host:7861"
        )
    body = to_bytes(encode(manifest))
    address = f"{url}/api/v1/runs/{manifest.run_id}"
    with client or new_client() as client:
        said = request(client, "POST", address, key, body)
    return Link(url, str(said["write_token"]))


def new_client() -> httpx.Client:
    """A client for talking to a collector."""
    import httpx  # not needed by the many who record to a shared disk

    return httpx.Client(timeout=TIMEOUT_S)


def request(client: httpx.Client, method: str, url: str, token: str, body: bytes) -> dict[str, Any]:
    """What a collector answers; raises `Unreachable`, or `Refused` with its own two lines."""
    import httpx

    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
    try:
        answer = client.request(method, url, content=body, headers=headers)
    except httpx.HTTPError as error:
        raise Unreachable(
            f"the collector cannot be reached: {error}",
            fix="records wait on this disk and are sent once it answers",
        ) from error
    with contextlib.suppress(ValueError):
        said = answer.json()
        if answer.status_code == 200 and isinstance(said, dict):
            return said
        if isinstance(said, dict):
            raise Refused(answer.status_code, str(said.get("error")), fix=str(said.get("fix")))
    raise Refused(answer.status_code, "no answer of a collector", fix="look at its own log")


class Refused(RecordsError):
    """The collector does not take this."""

    def __init__(self, status: int, message: str, *, fix: str) -> None:
        super().__init__(f"the collector refuses ({status}): {message}", fix=fix)
        self.status = status

    @property
    def is_about_the_content(self) -> bool:
        """Whether sending the same again would be refused again."""
        return self.status in (400, 413)


def _path(run: RunDirectory) -> Path:
    return run.path / "collector.json"
