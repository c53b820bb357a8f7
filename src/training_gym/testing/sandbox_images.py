"""Small images for tests of real ones, made of the host's static busybox and its Python."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

from training_gym.sandboxes.images.layout import architecture

_APPLETS = (
    *("sh", "cat", "ls", "cp", "mv", "rm", "mkdir", "rmdir", "ln", "chmod", "chown", "echo", "id"),
    *("printf", "env", "ps", "kill", "sleep", "true", "false", "test", "head", "tail", "wc", "dd"),
    *("od", "base64", "sha256sum", "stat", "find", "xargs", "grep", "sed", "awk", "sort", "tr"),
    *("cut", "date", "uname", "touch", "mkfifo", "mktemp", "readlink", "setsid", "nohup", "yes"),
    *("timeout", "seq", "tee", "basename", "dirname", "pwd", "sync", "du", "df", "nc"),
)
_PASSWD = b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/workspace:/bin/sh\n"
_FOLDERS = ("bin", "etc", "proc", "dev", "sys", "run", "root", "tmp", "var", "var/tmp")


def busybox() -> Path | None:
    """The host's statically linked busybox; None where there is none."""
    found = shutil.which("busybox")
    if found is None or b"/ld-linux" in Path(found).read_bytes()[:4096]:
        return None
    return Path(found)


def write_busybox_image(archive: Path, *, env: tuple[str, ...] = ("PATH=/bin",)) -> Path:
    """Write an archive of an OCI layout whose image has busybox and its applets; returns it."""
    return _write_image(archive, env, ())


def write_python_image(archive: Path) -> Path:
    """The same with `/usr/local/bin/python3`: this interpreter, its library and what they load."""
    return _write_image(archive, ("PATH=/usr/local/bin:/bin",), tuple(_python_files()))


def _python_files() -> Iterator[Path]:
    """Everything that the interpreter opens; where it lies here, it lies in the image."""
    program = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "dist-packages", "test", "idlelib", "ensurepip", "__pycache__"}
    modules = []
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in left_out]
        modules += [Path(folder) / name for name in names]
    yield program
    yield from modules
    told = subprocess.run(
        ["ldd", program, *(path for path in modules if path.suffix == ".so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    yield from {Path(word) for line in told.splitlines() for word in line.split()[:3]
                if word.startswith("/") and not word.endswith(":")}  # fmt: skip


def _write_image(archive: Path, env: tuple[str, ...], files: tuple[Path, ...]) -> Path:
    program = busybox()
    assert program is not None
    layer = _layer(program.read_bytes(), files)
    layer_id = f"sha256:{hashlib.sha256(layer).hexdigest()}"
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Env": list(env)},
        "rootfs": {"type": "layers", "diff_ids": [layer_id]},
        "history": [{"created_by": "busybox and its applets"}],
    }
    with tarfile.open(archive, "w") as out:
        kind = "application/vnd.oci.image"
        layers = [_blob(out, layer, f"{kind}.layer.v1.tar")]
        about = _blob(out, json.dumps(config).encode(), f"{kind}.config.v1+json")
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": about,
            "layers": layers,
        }
        entry = _blob(out, json.dumps(manifest).encode(), f"{kind}.manifest.v1+json")
        platform = {"os": "linux", "architecture": architecture()}
        index = {"schemaVersion": 2, "manifests": [{**entry, "platform": platform}]}
        _add(out, "index.json", json.dumps(index).encode())
        _add(out, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    return archive


def _layer(program: bytes, files: tuple[Path, ...]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tree:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            tree.addfile(entry)
        _add(tree, "bin/busybox", program, 0o755)
        _add(
            tree, "etc/passwd", b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/workspace:/bin/sh\n"
        )
        _add(tree, "etc/group", b"root:x:0:\nuser:x:1000:\n")
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tree.addfile(link)
        for path in files:
            if path.is_file():
                _add(tree, str(path).lstrip("/"), path.read_bytes(), 0o755)
        if files:
            link = tarfile.TarInfo("usr/local/bin/python3")
            link.type, link.linkname = tarfile.SYMTYPE, str(files[0])
            if link.name != str(files[0]).lstrip("/"):
                tree.addfile(link)
    return buffer.getvalue()


def _blob(out: tarfile.TarFile, data: bytes, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256(data).hexdigest()
    _add(out, f"blobs/sha256/{digest}", data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _add(out: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    out.addfile(entry, io.BytesIO(data))
