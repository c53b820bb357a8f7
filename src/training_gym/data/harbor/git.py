"""Tasks from git repositories: one pinned commit each, kept in the cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from training_gym.spec.errors import DataError
from training_gym.spec.home import cache_directory

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT_S = 600


def checkout(url: str, commit: str | None) -> Path:
    """The work tree of a commit; raises `DataError` for one that is not pinned or not there."""
    if url.startswith("-") or "::" in url:
        raise DataError(f"{url!r} is no address of a repository", fix="give an https or ssh URL")
    if commit is None or not _COMMIT.fullmatch(commit):
        raise DataError(
            f"{url} is not pinned to a commit: {commit!r}",
            fix="give the 40 digits of a commit, so that the tasks stay the same",
        )
    place = cache_directory() / "harbor" / hashlib.sha256(url.encode()).hexdigest()[:16] / commit
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=place.parent, prefix=".fetching-"))
    try:
        _fetch(url, commit, partial)
        shutil.rmtree(partial / ".git")
        try:
            partial.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return place


def _fetch(url: str, commit: str, folder: Path) -> None:
    _git(folder, "init", "--quiet")
    shallow = _git(folder, "fetch", "--quiet", "--depth=1", "--", url, commit, check=False)
    if shallow.returncode != 0:  # not every server hands out a commit by its number
        _git(folder, "fetch", "--quiet", "--", url, "+refs/*:refs/fetched/*")
    _git(folder, "checkout", "--quiet", "--detach", commit)


def _git(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    }
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(
            f"git {arguments[0]} failed: {error}", fix="install git, try again"
        ) from None
    if check and done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(
            f"git {arguments[0]} failed: {reason}", fix="check the address, the commit and access"
        )
    return done
