"""Declared artifacts, carried from where an agent worked to where a verifier looks."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Sequence

from training_gym.data.harbor.declared import Artifact
from training_gym.rewards.graders.submission import ARTIFACT, Submission, leave
from training_gym.spec.sandboxes import Sandbox

PUBLISHED = "/logs/artifacts"
"""Carried whether declared or not."""


async def carry_artifacts(
    source: Sandbox, target: Sandbox, declared: Sequence[str | Artifact]
) -> list[str]:
    """Copy regular files by content to the same paths; says what stayed behind."""
    entries = [Artifact(source=item) if isinstance(item, str) else item for item in declared]
    if all(entry.source.rstrip("/") != PUBLISHED for entry in entries):
        entries.insert(0, Artifact(source=PUBLISHED))
    notes = []
    for entry in entries:
        path = posixpath.normpath(entry.source)
        taken = Submission.read((await leave(source, [path]))[ARTIFACT])
        notes += [
            f"artifact {reason}"
            for reason in taken.refused
            if path != PUBLISHED or "no regular file" in reason
        ]
        for name, data in _absolute(taken, source.workspace).items():
            below = posixpath.relpath(name, path)
            parts = [below, *below.split("/")]
            if any(fnmatch.fnmatch(part, pattern) for pattern in entry.exclude for part in parts):
                continue
            await target.write_file(name, data)
    return notes


def _absolute(taken: Submission, workspace: str) -> dict[str, bytes]:
    """Files by absolute path; they were read from outside, so a path may lead anywhere inside."""
    import base64

    return {
        posixpath.normpath(posixpath.join(workspace, path)): base64.b64decode(text)
        for path, text in taken.files.items()
    }
