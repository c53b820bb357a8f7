"""The trees of mounts: the zygote's own, and the one each sandbox sees.

The zygote pivots into a tiny tree on tmpfs, because each sandbox starts with a copy of its mounts:

    /usr …        the host's programs, read-only: what the interpreter may still load
    /run/lower    the image: a clean bind without submounts, which overlay demands
    /run/store    snapshots, read-only
    /run/mount/k  what the spec mounts, read-only
    /run/box      where a sandbox builds its own tree
    /proc, /dev   for the zygote; /dev is bound into sandboxes and therefore read-only
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training_gym.sandboxes.zygote.inside import folders
from training_gym.sandboxes.zygote.inside import syscalls as sc

WORKSPACE = "/workspace"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "shm": "/tmp",
    "ptmx": "pts/ptmx",
}
_PUBLIC_ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "nsswitch.conf",
    "mime.types",
    "services",
    "protocols",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates.conf",
    "pki/tls/certs",
    "localtime",
    "terminfo",
)
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/workspace:/bin/sh\n"
_GROUP = "root:x:0:\nuser:x:1000:\n"


@dataclass(frozen=True)
class Boot:
    """What a zygote is started for."""

    rootless: bool
    image: str
    """Folder with the image's root; empty: the host's own programs."""
    programs: tuple[str, ...]
    """Folders of the host that programs lie in, `/usr` first."""
    mounts: tuple[tuple[str, str], ...]
    """Source on the host and target in the sandbox."""
    store: str
    scratch: str
    """An empty folder of the host to build on."""


def build_zygote_tree(boot: Boot) -> None:
    """Enter the zygote's own tree; the caller has a mount namespace of its own."""
    sc.mount(None, "/", None, sc.RECURSIVE | sc.PRIVATE)
    root = f"{boot.scratch}/root"
    sc.mount("tmpfs", boot.scratch, "tmpfs", sc.NOSUID, "size=8m,mode=755")
    os.mkdir(root)
    sc.bind(root, root)
    _bind_programs(boot.programs, root)
    for folder in ("run/lower", "run/store", "run/box", "run/mount", "proc", "dev"):
        os.makedirs(f"{root}/{folder}")
    if boot.image:
        sc.bind(boot.image, f"{root}/run/lower", read_only=True)
    else:
        _build_skeleton(boot.programs, f"{root}/run/lower")
    sc.bind(boot.store, f"{root}/run/store", read_only=True)
    for number, (source, _) in enumerate(boot.mounts):
        place = f"{root}/run/mount/{number}"
        _make_like(source, place)
        sc.bind(source, place, recursive=True, read_only=True)
    _build_devices(f"{root}/dev")
    sc.bind("/proc", f"{root}/proc", recursive=True)
    sc.change_root(root)


def _bind_programs(programs: Sequence[str], root: str) -> None:
    """Bind the folders and repeat the links (`/bin -> usr/bin`) that lead to them."""
    for folder in programs:
        os.makedirs(root + folder, exist_ok=True)
        sc.bind(folder, root + folder, read_only=True)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")


def _build_skeleton(programs: Sequence[str], lower: str) -> None:
    """The host image's lowest layer: mount points, links and a few public files of `/etc`."""
    sc.mount("tmpfs", lower, "tmpfs", sc.NOSUID, "size=8m,mode=755")
    for folder in (*programs, "/proc", "/dev", "/tmp", "/run", "/sys", "/var/tmp", "/etc", "/root"):
        os.makedirs(lower + folder, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{lower}/{name}")
    etc = {"passwd": _PASSWD, "group": _GROUP, "hosts": "127.0.0.1 localhost\n::1 localhost\n"}
    for name, text in {**etc, "hostname": "sandbox\n"}.items():
        Path(f"{lower}/etc/{name}").write_text(text, encoding="utf-8")
    for name in _PUBLIC_ETC:
        _copy_public(f"/etc/{name}", f"{lower}/etc/{name}")


def _copy_public(source: str, target: str) -> None:
    """Copy what every user of the host may read; anything else, and what is absent, is left out."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # What a link leads to: the sandbox may not see the place.
        place = os.path.realpath(source)
        if os.path.isdir(place) or os.stat(place).st_mode & 0o004:
            folders.copy(place, target)


def _make_like(source: str, place: str) -> None:
    """A mount point for a folder or a file."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    elif not os.path.lexists(place):
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))


def _build_devices(dev: str) -> None:
    sc.mount("tmpfs", dev, "tmpfs", sc.NOSUID, "size=64k,mode=755")
    for name in _DEVICES:
        _make_like(f"/dev/{name}", f"{dev}/{name}")
        sc.bind(f"/dev/{name}", f"{dev}/{name}")
    for name, target in _LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    # All sandboxes share this one: what one could write there, another would read.
    sc.mount(None, dev, None, sc.REMOUNT | sc.BIND | sc.RDONLY | sc.NOSUID)


def build_sandbox_tree(
    boot: Boot, disk_mb: int, files: int, layers: Sequence[str]
) -> tuple[int, list[str]]:
    """Enter the sandbox's own tree; the caller is root in new user and mount namespaces.

    Args:
        boot: What the zygote was started for.
        disk_mb: What may be written, MiB.
        files: How many may be made.
        layers: Snapshots in the store to start from, the newest first.

    Returns a descriptor of the folder holding the writable layer, and what had to be left out.
    """
    missing: list[str] = []
    limits = f"size={disk_mb}m,nr_inodes={files},mode=755"
    sc.mount("tmpfs", "/run/box", "tmpfs", sc.NOSUID | sc.NODEV, limits)
    for name in ("/run/box/upper", "/run/box/work", "/run/box/root"):
        os.mkdir(name)
    state = os.open("/run/box", os.O_RDONLY | os.O_DIRECTORY)
    _prepare_upper(boot, "/run/box/upper", fresh=not layers)
    root = "/run/box/root"
    lower = ":".join([*(f"/run/store/{layer}" for layer in layers), "/run/lower"])
    options = f"lowerdir={lower},upperdir=/run/box/upper,workdir=/run/box/work,userxattr"
    sc.mount("overlay", root, "overlay", sc.NOSUID | sc.NODEV, options)
    if not boot.image:
        for folder in boot.programs:
            sc.mount(folder, root + folder, None, sc.BIND | sc.RECURSIVE)
    for number, (_, target) in enumerate(boot.mounts):
        sc.mount(f"/run/mount/{number}", root + target, None, sc.BIND | sc.RECURSIVE)
    sc.mount("/dev", "/run/box/root/dev", None, sc.BIND | sc.RECURSIVE)
    _mount_optional("devpts", "/run/box/root/dev/pts", "newinstance,ptmxmode=0666", missing)
    if not _mount_optional("proc", "/run/box/root/proc", "", missing):
        # Inside a container /proc may be masked. Go without; never show the outer one.
        sc.mount("tmpfs", "/run/box/root/proc", "tmpfs", sc.RDONLY | sc.NOSUID, "size=4k")
    sc.change_root(root)
    return state, missing


def _prepare_upper(boot: Boot, upper: str, *, fresh: bool) -> None:
    """Folders that every sandbox needs and an image may lack; made in the writable layer."""
    if fresh:
        for folder, mode in (("/tmp", 0o1777), ("/var", 0o755), ("/var/tmp", 0o1777)):
            os.mkdir(upper + folder)
            os.chmod(upper + folder, mode)
        os.mkdir(upper + WORKSPACE)
    if not boot.image and not boot.mounts:
        return
    for folder in ["/proc", "/dev", *(target for _, target in boot.mounts)] if boot.image else []:
        os.makedirs(upper + folder, exist_ok=True)
    for number, (_, target) in enumerate(boot.mounts):
        _make_like(f"/run/mount/{number}", upper + target)


def _mount_optional(kind: str, target: str, data: str, missing: list[str]) -> bool:
    flags = sc.NOSUID | sc.NOEXEC | (sc.NODEV if kind == "proc" else 0)
    try:
        sc.mount(kind, target, kind, flags, data)
    except OSError:
        missing.append(kind)
        return False
    return True
