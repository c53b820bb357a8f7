"""A fake whose sandboxes live on after the process, as a remote provider's do: files in a folder.

For what must hold across deaths: journals, reapers, quotas. A creation can be made to finish at the
provider even though the one who asked has died.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training_gym.spec.sandboxes import SandboxCapabilities, SandboxInfo, SandboxSpec
from training_gym.testing.fake_sandbox import FakeSandbox
from training_gym.testing.fake_sandboxes import FakeProvider


class FolderProvider(FakeProvider):
    """Sandboxes as files `<id>.json` that hold their tags."""

    name = "folder"

    def __init__(self, folder: Path, **fake: Any) -> None:
        """`fake`: arguments of `FakeProvider`."""
        super().__init__(**fake)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def capabilities(self) -> SandboxCapabilities:
        """Those of the fake, and remote."""
        return super().capabilities().changed(remote=True)

    async def create(self, spec: SandboxSpec, *, timeout_s: float = 60.0) -> FakeSandbox:
        """One more file, written before the start ends: a death in between leaves it."""
        path = self._folder / f"{uuid.uuid4().hex}.json"
        draft = path.with_suffix(".draft")  # no provider has a sandbox without its tags
        draft.write_text(json.dumps(spec.tags))
        draft.rename(path)
        try:
            sandbox = await super().create(spec, timeout_s=timeout_s)
        except BaseException:
            path.unlink()
            raise
        del self.alive[sandbox.id]
        sandbox.id = path.stem
        self.alive[sandbox.id] = sandbox
        sandbox.destroy = lambda: self.destroy(path.stem)  # type: ignore[method-assign]
        return sandbox

    async def list(self, tags: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Those whose files carry the tags, whichever process made them."""
        wanted = dict(tags or {}).items()
        found = []
        for path in sorted(self._folder.glob("*.json")):
            carried = json.loads(path.read_text())
            if wanted <= carried.items():
                found.append(
                    SandboxInfo(id=path.stem, tags=carried, created_at=time.time(), tier="fake")
                )
        return found

    async def destroy(self, sandbox_id: str) -> None:
        """Remove the file."""
        self.alive.pop(sandbox_id, None)
        (self._folder / f"{sandbox_id}.json").unlink(missing_ok=True)
