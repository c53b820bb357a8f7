"""task.toml as a value: schema 1.0 to 1.4, older spellings translated.

The fields and their defaults are Harbor's, so that equal files mean equal things;
`tests/harbor` compares both readings in an environment that has the harbor package.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from training_gym.data.harbor.declared import ArtifactEntry, Collect, McpServer
from training_gym.data.harbor.model import HarborModel
from training_gym.data.harbor.network import BaselineNetwork, PhaseNetwork

NEWEST_SCHEMA = (1, 4)

_PACKAGE_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*\n?")
_BAD_IN_STEP = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[1-9¹²³])", re.IGNORECASE)
_SIZES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


class Author(HarborModel):
    """Who wrote it."""

    name: str
    email: str | None = None


class Package(HarborModel):
    """The task's name in registries."""

    name: str
    version: str | None = Field(None, min_length=1)
    description: str = ""
    authors: list[Author] = []
    keywords: list[str] = []

    @field_validator("name")
    @classmethod
    def _has_organisation(cls, name: str) -> str:
        if not _PACKAGE_NAME.fullmatch(name) or ".." in name:
            raise ValueError("the name must be organisation/name of letters, digits, '-_.'")
        return name


class Healthcheck(HarborModel):
    """A command that must succeed before the agent begins."""

    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: int = 3


class Tpu(HarborModel):
    """A TPU slice."""

    type: str = Field(min_length=1)
    topology: str

    @field_validator("topology")
    @classmethod
    def _dimensions(cls, value: str) -> str:
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", value.strip()):
            raise ValueError("a topology is dimensions like 2x4")
        return value.strip()


class EnvironmentConfig(BaselineNetwork):
    """What the task runs in."""

    build_timeout_sec: float = 600.0
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: int | float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: Tpu | None = None
    mcp_servers: list[McpServer] = []
    env: dict[str, str] = {}
    """Values may be `${NAME}` or `${NAME:-default}`, taken from the host."""
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _translate_older_spellings(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if isinstance(given := data.pop(old, None), str):
                size = _megabytes(given)
                if data.setdefault(new, size) != size:
                    raise ValueError(f"{old} = {given!r} contradicts {new} = {data[new]!r}")
        allowed = data.pop("allow_internet", None)
        if allowed is not None:
            allowed = _boolean(allowed)
            if "network_mode" not in data and data.get("allowed_hosts") is None:
                data["network_mode"] = "public" if allowed else "no-network"
        if isinstance(data.get("os"), str):
            data["os"] = data["os"].lower()
        return data

    @field_validator("cpus")
    @classmethod
    def _whole_cpus(cls, value: int | float | None) -> int | float | None:
        if not isinstance(value, float):
            return value
        if not math.isfinite(value):
            raise ValueError("cpus must be finite")
        return int(value) if value.is_integer() else value


class AgentConfig(PhaseNetwork):
    """Limits of the agent's phase."""

    timeout_sec: float | None = None
    user: str | int | None = None


class VerifierConfig(PhaseNetwork):
    """How the verifier runs."""

    timeout_sec: float = 600.0
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentConfig | None = None
    collect: list[Collect] = []

    @model_validator(mode="after")
    def _own_environment_is_separate(self) -> VerifierConfig:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("environment_mode 'shared' excludes an environment of its own")
        return self

    @property
    def mode(self) -> Literal["shared", "separate"] | None:
        """The mode as far as this level decides it."""
        if self.environment_mode is None and self.environment is not None:
            return "separate"
        return self.environment_mode


class Solution(HarborModel):
    """Settings of the reference solution."""

    env: dict[str, str] = {}


class Step(HarborModel):
    """One step of a task with several."""

    name: str
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    min_reward: float | dict[str, float] | None = None
    """Ends the task where the step's reward, or one of the named ones, is lower."""
    healthcheck: Healthcheck | None = None
    artifacts: list[ArtifactEntry] = []

    @field_validator("name")
    @classmethod
    def _is_a_folder_name_everywhere(cls, name: str) -> str:
        stem = name.partition(".")[0].rstrip(" ")
        bad = not name.strip() or name in (".", "..") or name.endswith((".", " "))
        if bad or _BAD_IN_STEP.search(name) or _DEVICE.fullmatch(stem):
            raise ValueError("a step's name must be usable as a folder name on every system")
        if len(name.encode("utf-8")) > 255:
            raise ValueError("a step's name has at most 255 bytes")
        return name


class HarborConfig(HarborModel):
    """A whole task.toml."""

    schema_version: str = "1.4"
    task: Package | None = None
    metadata: dict[str, Any] = {}
    verifier: VerifierConfig = VerifierConfig()
    agent: AgentConfig = AgentConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    solution: Solution = Solution()
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[Step] | None = None
    artifacts: list[ArtifactEntry] = []

    @model_validator(mode="before")
    @classmethod
    def _version_was_the_schema(cls, data: Any) -> Any:
        if isinstance(data, dict) and "version" in data:
            data = dict(data)
            data.setdefault("schema_version", data.pop("version"))
            data.pop("version", None)
        return data

    @field_validator("steps")
    @classmethod
    def _names_differ(cls, steps: list[Step] | None) -> list[Step] | None:
        keys = [unicodedata.normalize("NFC", step.name).casefold() for step in steps or []]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ValueError(f"two steps are called {twice!r} on some file systems")
        return steps

    def verifier_mode(self, step: Step | None) -> Literal["shared", "separate"]:
        """Where the verifier of a step, or of a task without steps, runs."""
        own = step.verifier.mode if step is not None else None
        return own or self.verifier.mode or "shared"

    def verifier_environment(self, step: Step | None) -> EnvironmentConfig | None:
        """What a separate verifier runs in; None where it shares the agent's."""
        if self.verifier_mode(step) == "shared":
            return None
        own = step.verifier.environment if step is not None else None
        return own or self.verifier.environment or self.environment


def _megabytes(text: str) -> int:
    size = text.strip().upper()
    if size[-1:] not in _SIZES:
        raise ValueError(f"{text!r} is no size such as 512M or 2G")
    return int(float(size[:-1]) * _SIZES[size[-1]])


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in ("1", "1.0", "true", "t", "yes", "y", "on"):
        return True
    if text in ("0", "0.0", "false", "f", "no", "n", "off"):
        return False
    raise ValueError(f"allow_internet = {value!r} is neither true nor false")
