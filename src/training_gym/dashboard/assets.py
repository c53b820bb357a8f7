"""The built web app, held in memory: only files that exist when the server starts are served."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from training_gym.spec.errors import PlatformError

APP = Path(__file__).parent / "app"
INDEX = "/index.html"
_TEXT = frozenset({".html", ".js", ".css", ".svg", ".json", ".txt"})
mimetypes.add_type("text/javascript", ".js")


@dataclass(frozen=True)
class Asset:
    """A file of the app."""

    data: bytes
    packed: bytes | None
    """Gzipped, where that is worth it."""
    kind: str
    etag: str
    forever: bool
    """Its name has a hash of its content."""


class WebApp:
    """Answers any address that is no file with the index, which shows the page of that address."""

    def __init__(self, folder: Path = APP) -> None:
        """Read the files; raises `PlatformError` where the app was not built."""
        if not (folder / "index.html").is_file():
            raise PlatformError(
                f"the web app is not built: there is no {folder / 'index.html'}",
                fix="build it: make dashboard (from a checkout), or install a release",
            )
        self._files = {
            "/" + path.relative_to(folder).as_posix(): _read(path, folder)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    async def respond(self, request: Request) -> Response:
        """The file, its unchanged-answer, or the index."""
        path = request.url.path
        asset = self._files.get(path)
        if asset is None and path.startswith("/assets/"):
            return Response("there is no such file\n", 404, media_type="text/plain")
        asset = asset or self._files[INDEX]
        keep = "public, max-age=31536000, immutable" if asset.forever else "no-cache"
        headers = {"cache-control": keep, "etag": asset.etag, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == asset.etag:
            return Response(status_code=304, headers=headers)
        packs = "gzip" in request.headers.get("accept-encoding", "")
        if packs and asset.packed is not None:
            headers["content-encoding"] = "gzip"
            return Response(asset.packed, headers=headers, media_type=asset.kind)
        return Response(asset.data, headers=headers, media_type=asset.kind)

    @property
    def packed_bytes(self) -> int:
        """What a first visit loads of code and style at most."""
        return sum(len(asset.packed or asset.data) for asset in self._files.values())


def _read(path: Path, folder: Path) -> Asset:
    data = path.read_bytes()
    packed = gzip.compress(data, 9, mtime=0) if path.suffix in _TEXT else None
    return Asset(
        data=data,
        packed=packed,
        kind=mimetypes.guess_type(path.name)[0] or "application/octet-stream",
        etag=f'"{hashlib.sha256(data).hexdigest()[:20]}"',
        forever=path.parent == folder / "assets",
    )
