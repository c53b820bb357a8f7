"""Building a Dockerfile with whatever builder exists; its result is an archive to unpack."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from pathlib import Path

from training_gym.spec.sandboxes import DockerfileImage, SandboxUnsupported, StartFailed

BUILDERS = ("docker", "podman", "buildah")


def find_builder() -> str:
    """The first builder that is there; raises `SandboxUnsupported`."""
    for name in BUILDERS:
        # A docker client without its daemon builds nothing.
        if shutil.which(name) and (name != "docker" or os.path.exists("/var/run/docker.sock")):
            return name
    raise SandboxUnsupported(
        f"no builder for a Dockerfile is here: looked for {', '.join(BUILDERS)}",
        fix="install one, or give an image, or a remote provider that builds",
    )


async def build(image: DockerfileImage, archive: Path) -> None:
    """Build and write the archive; raises `StartFailed`, `SandboxUnsupported`."""
    dockerfile = Path(image.context) / image.dockerfile
    if not dockerfile.is_file():
        raise StartFailed(f"there is no {dockerfile}", fix="check context and dockerfile")
    builder = find_builder()
    tag = f"training-gym-build-{secrets.token_hex(6)}"
    verb = "bud" if builder == "buildah" else "build"
    try:
        async with asyncio.timeout(image.build_timeout_s):
            await _run(builder, verb, "-t", tag, "-f", str(dockerfile), image.context)
            if builder == "buildah":
                await _run(builder, "push", tag, f"docker-archive:{archive}")
            else:
                await _run(builder, "save", "-o", str(archive), tag)
    except TimeoutError:
        raise StartFailed(
            f"{dockerfile} was not built in {image.build_timeout_s:g} s",
            fix="raise build_timeout_s",
        ) from None
    finally:
        with contextlib.suppress(StartFailed):
            await _run(builder, "rmi", "-f", tag)


async def _run(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        last = " ".join(output.decode("utf-8", "replace").strip().splitlines()[-3:])
        raise StartFailed(
            f"{words[0]} {words[1]} ended with {process.returncode}: {last[-400:]}",
            fix="build it by hand to see all of its output",
        )
