"""From a task's environment folder to an image that sandboxes start from."""

from __future__ import annotations

import asyncio
import fnmatch
import posixpath
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from training_gym.environments.harbor.dockerfile import (
    WITHOUT_EFFECT,
    Instruction,
    assignments,
    expand,
    read_dockerfile,
)
from training_gym.rewards.graders.harbor import put_folder
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.sandboxes import (
    DockerfileImage,
    ExecRequest,
    HostImage,
    Image,
    Network,
    OciImage,
    Resources,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    SandboxUnsupported,
    StartFailed,
)

Base = Literal["image", "host"]
"""`image`: what FROM names; `host`: this machine's own programs instead, said in the report."""


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """An image and how commands run in it."""

    image: Image
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    notes: tuple[str, ...] = ()
    """Where it differs from what Docker would have built."""
    snapshot: str | None = None
    """To be deleted when it is no longer needed."""


async def build_environment(
    provider: SandboxProvider,
    folder: Path,
    *,
    docker_image: str | None,
    base: Base,
    network: Network,
    resources: Resources,
    timeout_s: float,
) -> BuiltEnvironment:
    """Build the Dockerfile of `folder`, or take the ready image.

    A provider with a builder builds it; else the instructions are carried out one by one in a
    sandbox, which is then frozen. Raises `EnvironmentFailure` for what cannot be honoured.
    """
    dockerfile = folder / "Dockerfile"
    if (folder / "docker-compose.yaml").is_file():
        raise EnvironmentFailure(
            "the environment is a docker-compose.yaml: services beside the main one cannot be run",
            fix="run it with Harbor's docker environment",
        )
    if docker_image is not None or not dockerfile.is_file():
        return _ready_image(docker_image, base, folder)
    if base == "image":
        built = await _with_builder(provider, folder, network, resources, timeout_s)
        if built is not None:
            return built
    builder = _Builder(provider, folder, base, network, resources)
    async with asyncio.timeout(timeout_s):
        return await builder.build(read_dockerfile(dockerfile.read_text(encoding="utf-8")))


def _ready_image(docker_image: str | None, base: Base, folder: Path) -> BuiltEnvironment:
    if base == "host":
        named = f"docker_image {docker_image}" if docker_image else "no image"
        return BuiltEnvironment(HostImage(), notes=(f"{named}: this machine's programs instead",))
    if docker_image is None:
        raise EnvironmentFailure(
            f"{folder} has no Dockerfile and the task names no docker_image",
            fix="add environment/Dockerfile",
        )
    return BuiltEnvironment(OciImage(reference=docker_image))


async def _with_builder(
    provider: SandboxProvider,
    folder: Path,
    network: Network,
    resources: Resources,
    timeout_s: float,
) -> BuiltEnvironment | None:
    """The image as the provider's own builder makes it; None where it has none."""
    if "dockerfile" not in provider.capabilities().images:
        return None
    image = DockerfileImage(context=str(folder), build_timeout_s=timeout_s)
    try:
        sandbox = await provider.create(
            SandboxSpec(image=image, resources=resources, network=network, user="root"),
            timeout_s=timeout_s,
        )
    except (StartFailed, SandboxUnsupported):
        return None  # then line by line, which names the line that fails
    await sandbox.destroy()
    return BuiltEnvironment(image, workdir=_workdir(folder))


def _workdir(folder: Path) -> str:
    """The last WORKDIR of a Dockerfile, whatever else it says."""
    here = "/"
    for line in (folder / "Dockerfile").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name.upper() == "WORKDIR":
            here = posixpath.join(here, rest.strip().strip('"'))
    return here


class _Builder:
    """Carries out instructions in one sandbox."""

    def __init__(
        self,
        provider: SandboxProvider,
        folder: Path,
        base: Base,
        network: Network,
        resources: Resources,
    ) -> None:
        self._provider = provider
        self._folder = folder
        self._base = base
        self._network = network
        self._resources = resources
        self._env: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._workdir = "/"
        self._shell = ["/bin/sh", "-c"]
        self._notes: list[str] = []

    async def build(self, instructions: list[Instruction]) -> BuiltEnvironment:
        """All of them, then freeze."""
        first = next(item for item in instructions if item.name == "FROM")
        for item in instructions[: instructions.index(first)]:
            self._argument(item)
        spec = SandboxSpec(
            image=self._from(first),
            resources=self._resources,
            network=self._network,
            user="root",
            tags={"purpose": "harbor-build"},
        )
        async with await self._provider.create(spec) as sandbox:
            for item in instructions[instructions.index(first) + 1 :]:
                await self._carry_out(sandbox, item)
            snapshot = await sandbox.snapshot()
        return BuiltEnvironment(
            snapshot.image, self._env, self._workdir, tuple(self._notes), snapshot.id
        )

    def _from(self, item: Instruction) -> Image:
        reference = expand(item.text, self._arguments).split()[0]
        if self._base == "host":
            self._notes.append(f"FROM {reference}: this machine's programs instead")
            return HostImage()
        if "oci" not in self._provider.capabilities().images:
            raise EnvironmentFailure(
                f"Dockerfile, line {item.line}: {self._provider.name} cannot start from "
                f"{reference}",
                fix="use another provider, or --base host to take this machine's programs",
            )
        return OciImage(reference=reference)

    async def _carry_out(self, sandbox: Sandbox, item: Instruction) -> None:
        variables = {**self._arguments, **self._env}
        if item.name in WITHOUT_EFFECT:
            return
        if item.name == "ARG":
            self._argument(item)
        elif item.name == "ENV":
            expanded = Instruction(item.line, "ENV", expand(item.text, variables), {})
            self._env.update(assignments(expanded))
        elif item.name == "SHELL":
            self._shell = item.words
        elif item.name == "WORKDIR":
            self._workdir = posixpath.join(self._workdir, expand(item.text, variables).strip('"'))
            await self._run(sandbox, item, ["mkdir", "-p", self._workdir], cwd="/")
        elif item.name == "USER":
            if item.text.strip() not in ("root", "0", "root:root", "0:0"):
                raise EnvironmentFailure(
                    f"Dockerfile, line {item.line}: USER {item.text} cannot be honoured here",
                    fix="use a provider that builds Dockerfiles, or run the task as root",
                )
        elif item.name == "RUN":
            is_list = item.text.startswith("[")
            argv = item.words if is_list else [*self._shell, item.text]
            await self._run(sandbox, item, argv, cwd=self._workdir)
        else:
            await self._copy(sandbox, item, variables)

    def _argument(self, item: Instruction) -> None:
        name, _, default = item.text.partition("=")
        self._arguments.setdefault(name.strip(), default.strip().strip("\"'"))

    async def _run(self, sandbox: Sandbox, item: Instruction, argv: list[str], cwd: str) -> None:
        result = await sandbox.exec(
            ExecRequest(
                argv=tuple(argv), cwd=cwd, env={**self._arguments, **self._env}, timeout_s=3600
            )
        )
        if not result.ok:
            why = result.failure or f"exit code {result.exit_code}"
            said = (result.error_text or result.text).strip()[-300:]
            raise EnvironmentFailure(
                f"Dockerfile, line {item.line}: {item.name} {item.text:.80} failed: {why}: {said}",
                fix="mend the line, or build with docker or podman",
            )

    async def _copy(self, sandbox: Sandbox, item: Instruction, variables: dict[str, str]) -> None:
        *sources, target = [expand(word, variables) for word in item.words]
        if not sources:
            raise EnvironmentFailure(
                f"Dockerfile, line {item.line}: {item.name} {item.text} names no source",
                fix="write COPY source target",
            )
        if "chown" in item.flags and item.flags["chown"].split(":")[0] not in ("root", "0"):
            self._notes.append(f"line {item.line}: --chown={item.flags['chown']} is root instead")
        paths = [path for source in sources for path in self._matching(source, item)]
        where = posixpath.join(self._workdir, target)
        into = target.endswith("/") or target in (".", "..") or len(paths) > 1
        for path in paths:
            if path.is_dir():
                await put_folder(sandbox, path, where)
                await self._run(sandbox, item, ["mkdir", "-p", where], cwd="/")
                continue
            into_folder = into or (await _is_folder(sandbox, where))
            name = posixpath.join(where, path.name) if into_folder else where
            mode = int(item.flags.get("chmod") or "0", 8) or (path.stat().st_mode & 0o777)
            await sandbox.write_file(posixpath.normpath(name), path.read_bytes(), mode=mode)

    def _matching(self, source: str, item: Instruction) -> list[Path]:
        clean = posixpath.normpath(source.lstrip("/") or ".")
        root = self._folder.resolve()
        if any(sign in clean for sign in "*?["):
            parent = root / posixpath.dirname(clean)
            names = sorted(parent.iterdir()) if parent.is_dir() else []
            found = [
                path for path in names if fnmatch.fnmatch(path.name, posixpath.basename(clean))
            ]
        else:
            found = [root / clean] if (root / clean).exists() else []
        inside = [path for path in found if path.resolve().is_relative_to(root)]
        if not inside:
            raise EnvironmentFailure(
                f"Dockerfile, line {item.line}: {source!r} is not in the environment folder",
                fix="put the file there",
            )
        return inside


async def _is_folder(sandbox: Sandbox, path: str) -> bool:
    return (await sandbox.exec(ExecRequest(argv=("test", "-d", path), timeout_s=30))).ok
