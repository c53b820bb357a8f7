"""One task folder: its configuration, its instructions, its scripts, its digest."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from training_gym.data.harbor.config import NEWEST_SCHEMA, HarborConfig, Step
from training_gym.data.harbor.digest import content_digest
from training_gym.data.harbor.ignore import TaskIgnore
from training_gym.data.harbor.model import unknown_keys
from training_gym.spec.errors import DataError, SpecError

CONFIG_FILE = "task.toml"
INSTRUCTION_FILE = "instruction.md"

_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_SCRIPT = {"linux": ".sh", "windows": ".bat"}


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task as it lies on disk, checked: every file it needs is there."""

    folder: Path
    name: str
    """`organisation/name` from task.toml, else the folder's name."""
    config: HarborConfig
    instructions: tuple[str, ...]
    """One for each step; one for a task without steps."""
    digest: str
    """SHA-256 of what the task consists of, as Harbor's registries compute it."""
    unknown: tuple[str, ...]
    """Keys of task.toml that no schema up to 1.4 has: Harbor ignores them, so do we."""

    @property
    def steps(self) -> tuple[Step | None, ...]:
        """The steps; a task without any has the one step None."""
        return tuple(self.config.steps or (None,))

    def tests_folders(self, step: Step | None) -> tuple[Path, ...]:
        """Folders copied to /tests, later ones over earlier ones."""
        folders = [self.folder / "tests"]
        if step is not None:
            folders.append(self.folder / "steps" / step.name / "tests")
        return tuple(folder for folder in folders if folder.is_dir())

    def test_script(self, step: Step | None) -> str | None:
        """Path below /tests of the script that grades; None: it is in the verifier's image."""
        system = _system(self.config, step)
        script = _find_script([*reversed(self.tests_folders(step))], "test", system)
        return None if script is None else script.name

    def solution(self, step: Step | None) -> Path | None:
        """The script of the reference solution; None: the task has none."""
        system = self.config.environment.os
        if step is not None:
            own = self.folder / "steps" / step.name / "solution"
            if own.is_dir():
                return _find_script([own], "solve", system)
        return _find_script([self.folder / "solution"], "solve", system)

    def verifier_image(self, step: Step | None) -> Path | None:
        """Folder of a separate verifier's own Dockerfile, which holds its tests; else None."""
        if self.config.verifier_mode(step) == "shared":
            return None
        return next(
            (
                folder
                for folder in reversed(self.tests_folders(step))
                if (folder / "Dockerfile").is_file() or (folder / "docker-compose.yaml").is_file()
            ),
            None,
        )


def read_task(folder: Path | str) -> HarborTask:
    """Read and check one task folder; raises `DataError` that names the file and the fault."""
    folder = Path(folder).resolve()
    config, unknown = _read_config(folder)
    try:
        _check(folder, config)
        instructions = _instructions(folder, config)
        digest = content_digest(folder)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder.name}: {error}", fix="mend the task folder; docs/harbor.md shows its layout"
        ) from None
    name = config.task.name if config.task is not None else folder.name
    return HarborTask(folder, name, config, instructions, digest, unknown)


def is_task_folder(folder: Path) -> bool:
    """Whether a folder claims to be a task."""
    return (folder / CONFIG_FILE).is_file()


def newer_than_known(config: HarborConfig) -> bool:
    """Whether the task is written for a schema that came after the newest known one."""
    found = re.match(r"(\d+)\.(\d+)", config.schema_version)
    return found is not None and (int(found[1]), int(found[2])) > NEWEST_SCHEMA


def _read_config(folder: Path) -> tuple[HarborConfig, tuple[str, ...]]:
    path = folder / CONFIG_FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder} has no {CONFIG_FILE}", fix="give a folder of a Harbor task"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not TOML: {error}", fix="mend the file") from None
    try:
        config = HarborConfig.read(data)
    except SpecError as error:
        raise DataError(f"{path}: {error.message}", fix=error.fix) from None
    legacy = {"version", "environment.memory", "environment.storage", "environment.allow_internet"}
    unknown = (name for name in unknown_keys(HarborConfig, data) if name not in legacy)
    return config, tuple(name for name in unknown if not name.endswith(".allow_internet"))


def _check(folder: Path, config: HarborConfig) -> None:
    """Raise `ValueError` or `OSError` for whatever keeps the task from being run."""
    if not config.environment.docker_image and not (folder / "environment").is_dir():
        raise ValueError("there is neither environment/ nor [environment] docker_image")
    ignore = TaskIgnore(folder)
    for name in ("tests", "solution"):
        _stays_inside(folder / name, folder, ignore)
    if not config.steps:
        if not (folder / INSTRUCTION_FILE).exists():
            raise ValueError(f"{INSTRUCTION_FILE} is missing")
        _check_tests(folder, config, None, ignore)
    for step in config.steps or ():
        home = folder / "steps" / step.name
        if not home.resolve().is_relative_to(folder):
            raise ValueError(f"steps/{step.name} links out of the task")
        _stays_inside(home, folder, ignore)
        if not (home / INSTRUCTION_FILE).exists():
            raise ValueError(f"steps/{step.name}/{INSTRUCTION_FILE} is missing")
        _check_tests(folder, config, step, ignore)


def _check_tests(folder: Path, config: HarborConfig, step: Step | None, ignore: TaskIgnore) -> None:
    places = [folder / "tests"]
    if step is not None:
        places.insert(0, folder / "steps" / step.name / "tests")
    if config.verifier_mode(step) == "separate":
        environments = [config.verifier.environment]
        if step is not None:
            environments.insert(0, step.verifier.environment)
        for place, environment in zip(places, environments, strict=True):
            if environment is not None and environment.docker_image:
                return
            if any((place / name).is_file() for name in ("Dockerfile", "docker-compose.yaml")):
                _stays_inside(place, folder, None)
                return
        _stays_inside(folder / "environment", folder, None)
    script = _find_script(places, "test", _system(config, step))
    if script is None:
        where = " or ".join(place.relative_to(folder).as_posix() for place in places)
        raise ValueError(f"there is no test{_SCRIPT[_system(config, step)]} in {where}")
    if ignore.leaves_out(script):
        raise ValueError(f"{script.relative_to(folder)} is left out by .harborignore")


def _system(config: HarborConfig, step: Step | None) -> str:
    """The operating system a verifier runs on: its environment's own, else the task's."""
    environment = config.verifier_environment(step)
    if environment is None or "os" not in environment.model_fields_set:
        return config.environment.os
    return environment.os


def _find_script(places: list[Path], name: str, system: str) -> Path | None:
    paths = (place / f"{name}{_SCRIPT[system]}" for place in places)
    return next((path for path in paths if path.exists()), None)


def _instructions(folder: Path, config: HarborConfig) -> tuple[str, ...]:
    places = [folder / "steps" / step.name for step in config.steps or ()] or [folder]
    return tuple(
        _without_canary((place / INSTRUCTION_FILE).read_text(encoding="utf-8")) for place in places
    )


def _without_canary(text: str) -> str:
    """The text after leading lines that mark benchmark data, which no model should see."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


def _stays_inside(path: Path, root: Path, ignore: TaskIgnore | None) -> None:
    """Refuse links that lead out of the task or round in circles."""

    def visit(here: Path, above: frozenset[Path]) -> None:
        if ignore is not None and ignore.leaves_out(here):
            return
        target = here.resolve()
        if not target.is_relative_to(root):
            raise ValueError(f"{here.relative_to(root)} links out of the task")
        if not here.is_dir():
            return
        if target in above:
            raise ValueError(f"{here.relative_to(root)} links to a folder above itself")
        for child in sorted(here.iterdir()):
            visit(child, above | {target})

    visit(path, frozenset())
