"""What is graded: files the agent declared, taken out of its world before that ends.

`leave` runs in an environment, while the agent's sandbox still lives; `submission_of` in a grader,
which puts the files into fresh sandboxes. Links, devices and files beyond the limits stay behind.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Sequence

from pydantic import JsonValue

from training_gym.rewards.graders.inspection import inspect_files
from training_gym.rewards.graders.verdict import Tampering
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.sandboxes import MIB, ExecRequest, Sandbox, SandboxFileError
from training_gym.spec.settings import Settings

ARTIFACT = "submission"
"""Key of an outcome's artifacts under which a submission stands."""

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.M | re.S
)

_LIST = """
import json, os, stat, sys
found = []
for top in json.load(sys.stdin):
    if os.path.isdir(top) and not os.path.islink(top):
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(folders)
            found += [os.path.join(folder, name) for name in sorted(names)]
            below = [os.path.join(folder, name) for name in folders]
            found += [path for path in below if os.path.islink(path)]
    else:
        found.append(top)
kind = lambda path: os.path.lexists(path) and stat.S_IFMT(os.lstat(path).st_mode)
print(json.dumps([[path, kind(path)] for path in found[:10000]]))
"""


class Submission(Settings):
    """Files by path, and what could not be taken along."""

    files: dict[str, str] = {}
    """Content in base64 by path relative to the workspace."""
    refused: tuple[str, ...] = ()
    """What was declared and left behind, each with the reason."""

    @classmethod
    def of(cls, files: dict[str, bytes]) -> Submission:
        """From content as bytes."""
        coded = {path: base64.b64encode(data).decode() for path, data in files.items()}
        return cls(files=coded)

    def contents(self) -> dict[str, bytes]:
        """Content as bytes by path; raises `RewardError` for a path that leads elsewhere."""
        for path in self.files:
            if posixpath.isabs(path) or ".." in path.split("/") or not path:
                raise RewardError(
                    f"the submission has a file at {path!r}, outside of the workspace",
                    fix="declare artifacts below the workspace",
                )
        return {path: base64.b64decode(text) for path, text in self.files.items()}

    def signs(self) -> list[Tampering]:
        """Signs of tampering in the files themselves."""
        found = [
            Tampering(kind="link", evidence=reason)
            for reason in self.refused
            if "no regular file" in reason
        ]
        return found + inspect_files(self.contents())


async def leave(
    sandbox: Sandbox, paths: Sequence[str], *, max_files: int = 1000, max_bytes: int = 32 * MIB
) -> dict[str, JsonValue]:
    """Take files and folders out of a living sandbox, for `Outcome.artifacts`.

    Paths start at the workspace. What lists the folders runs inside and may lie; all it can give
    away are the agent's own files, which are then read from outside, following no link.
    """
    listed = await sandbox.exec(
        ExecRequest(code=_LIST, stdin=json.dumps(list(paths)).encode(), timeout_s=30)
    )
    try:
        names = [(str(path), int(kind)) for path, kind in json.loads(listed.text)]
    except (ValueError, TypeError):
        return {ARTIFACT: Submission(refused=("the folders could not be listed",)).model_dump()}
    files: dict[str, bytes] = {}
    refused: list[str] = []
    room = max_bytes
    for path, kind in names:
        name = posixpath.relpath(posixpath.join("/", path), "/")
        if posixpath.isabs(path):
            name = posixpath.relpath(path, sandbox.workspace)
        if kind not in (0, 0o100000):
            refused.append(f"{path}: no regular file")
            continue
        try:
            files[name] = await sandbox.read_file(path, max_bytes=max(room, 1))
        except SandboxFileError as error:
            refused.append(f"{path}: {error.message}")
            continue
        room -= len(files[name])
        if len(files) == max_files or room <= 0:
            refused.append(f"{path}: beyond the limit of {max_files} files, {max_bytes} bytes")
            break
    kept = Submission.of(files)
    return {ARTIFACT: kept.changed(refused=tuple(refused)).model_dump(mode="json")}


def submission_of(episode: Episode, file: str) -> Submission:
    """The files an environment left; else the completion's last block of code, as `file`."""
    left = episode.outcome.artifacts.get(ARTIFACT)
    if left is not None:
        return Submission.read(left)
    return Submission.of({file: last_block(episode.completion).encode("utf-8", "replace")})


def last_block(text: str) -> str:
    """The last fenced block of a text; without a fence, all of it."""
    blocks = _FENCE.findall(text)
    return blocks[-1][2] if blocks else text
