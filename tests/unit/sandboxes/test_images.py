"""OCI images: layers over each other, nothing outside, damage told, registries by HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import io
import json
import os
import tarfile
import threading
from pathlib import Path

import pytest

from training_gym.sandboxes.images import registry
from training_gym.sandboxes.images.layout import architecture, opened
from training_gym.sandboxes.images.unpack import unpack
from training_gym.spec.sandboxes import StartFailed, StartTimeout


def layer(*entries: tuple[str, str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, kind, data in entries:
            entry = tarfile.TarInfo(name)
            entry.mode = 0o4755
            if kind == "file":
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))  # type: ignore[arg-type]
                continue
            entry.type = {"dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE}[
                kind
            ]
            entry.linkname = str(data)
            archive.addfile(entry)
    return buffer.getvalue()


LOWER = layer(
    ("etc", "dir", ""),
    ("etc/gone", "file", b"x"),
    ("etc/kept", "file", b"low"),
    ("opt/old", "file", b"x"),
    ("tmp", "dir", ""),
    ("out", "link", "/tmp"),
    ("twin", "hard", "etc/kept"),
)
UPPER = layer(
    ("etc/.wh.gone", "file", b""),
    ("opt/new", "file", b"y"),
    ("opt/.wh..wh..opq", "file", b""),
    ("out/through", "file", b"inside"),
    ("../../escaped", "file", b"no"),
)


def write_layout(folder: Path) -> Path:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    config = blob(json.dumps({"config": {"Env": ["PATH=/bin", "A=b=c"]}}).encode())
    manifest = {"config": config, "layers": [blob(LOWER), blob(UPPER)]}
    entry = blob(json.dumps(manifest).encode())
    wanted = {"os": "linux", "architecture": architecture()}
    other = {**entry, "digest": "sha256:" + "0" * 64, "platform": {"architecture": "vax"}}
    index = {"manifests": [other, {**entry, "platform": wanted}]}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


EXPECTED = {
    "etc/kept": "low",
    "twin": "low",
    "opt/new": "y",
    "tmp/through": "inside",
    "escaped": "no",
}


def test_layers_lie_over_each_other_and_nowhere_else(tmp_path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with opened(write_layout(tmp_path / "layout")) as found:
        unpack(found.layers, root, None)
    assert files(root) == EXPECTED
    assert found.env == {"PATH": "/bin", "A": "b=c"}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["layout", "root"]
    assert (root / "opt/new").stat().st_mode & 0o7777 == 0o755, "nothing is setuid"


def test_an_archive_is_as_good_as_a_folder(tmp_path) -> None:
    write_layout(tmp_path / "layout")
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(tmp_path / "layout", ".")
    with opened(tmp_path / "image.tar") as found:
        assert len(found.layers) == 2


def test_damage_is_told(tmp_path) -> None:
    write_layout(tmp_path / "layout")
    digest = hashlib.sha256(LOWER).hexdigest()
    (tmp_path / "layout" / "blobs" / "sha256" / digest).write_bytes(b"something else")
    with pytest.raises(StartFailed, match="damaged"), opened(tmp_path / "layout"):
        pass
    (tmp_path / "text").write_text("no image")
    with pytest.raises(StartFailed, match="is no image"), opened(tmp_path / "text"):
        pass


@pytest.fixture
def served(tmp_path):
    """A registry that wants an anonymous token, as public ones do."""
    folder = write_layout(tmp_path / "layout")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers["Host"]
            if self.path.startswith("/token"):
                self.answer(b'{"token": "t"}')
            elif self.headers.get("Authorization") != "Bearer t":
                challenge = f'Bearer realm="http://{host}/token",service="s",scope="pull"'
                self.answer(b"", 401, challenge)
            elif self.path == "/v2/some/image/manifests/latest":
                self.answer((folder / "index.json").read_bytes())
            else:
                blob = folder / "blobs" / "sha256" / self.path.rpartition(":")[2]
                self.answer(
                    blob.read_bytes() if blob.exists() else b"", 200 if blob.exists() else 404
                )

        def answer(self, body: bytes, status: int = 200, challenge: str = "") -> None:
            self.send_response(status)
            if challenge:
                self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_pulls_from_a_registry(served, tmp_path) -> None:
    blobs = tmp_path / "kept"
    found = asyncio.run(registry.pull(f"{served}/some/image", blobs))
    root = tmp_path / "root"
    root.mkdir()
    unpack(found.layers, root, None)
    assert files(root) == EXPECTED
    assert len(os.listdir(blobs)) == 3


def test_registries_fail_honestly(served, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(registry.HOST_VARIABLE, raising=False)
    with pytest.raises(StartFailed, match="HTTP 404"):
        asyncio.run(registry.pull(f"{served}/some/image:absent", tmp_path))
    with pytest.raises(StartFailed, match="names no registry"):
        asyncio.run(registry.pull("debian:12", tmp_path))
    with pytest.raises(StartTimeout, match="cannot be reached"):
        asyncio.run(registry.pull("127.0.0.1:9/some/image", tmp_path))
