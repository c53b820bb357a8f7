"""What a task declares beside its environment: artifacts, collect hooks, MCP servers."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from training_gym.data.harbor.model import HarborModel

MAIN_SERVICE = "main"

_SERVICE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)
_BARE = r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?\}"
_CREDENTIAL = re.compile(rf"\s*(?:[A-Za-z]+\s+)?{_BARE}(?:[\s:-]*{_BARE})*\s*")


def _service(name: str | None) -> str | None:
    if name is not None and not _SERVICE.fullmatch(name := name.strip()):
        raise ValueError(f"{name!r} is no name of a compose service")
    return name


def _without_dots(source: str) -> str:
    if ".." in PurePosixPath(source).parts:
        raise ValueError("an artifact's source has no '..'")
    return source


class Artifact(HarborModel):
    """A file or folder kept after the agent's phase."""

    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None

    _check_service = field_validator("service")(_service)

    @field_validator("source")
    @classmethod
    def _stays_below(cls, value: str) -> str:
        return _without_dots(value)

    @field_validator("destination")
    @classmethod
    def _is_relative(cls, value: str | None) -> str | None:
        if not value:
            return None
        parts = PurePosixPath(value).parts
        if "\\" in value or value.startswith("/") or not parts or ".." in parts:
            raise ValueError("an artifact's destination is a relative path without '..'")
        if value.rstrip("/") == "manifest.json":
            raise ValueError("manifest.json is the name of the list of artifacts itself")
        return value

    @model_validator(mode="after")
    def _other_services_are_absolute(self) -> Artifact:
        other = self.service not in (None, MAIN_SERVICE)
        if other and not re.match(r"/|[A-Za-z]:[/\\]", self.source):
            raise ValueError("an artifact of another service has an absolute source")
        return self


def _plain(entry: str | Artifact) -> str | Artifact:
    return _without_dots(entry) if isinstance(entry, str) else entry


ArtifactEntry = Annotated[str | Artifact, AfterValidator(_plain)]
"""As declared: a source alone, or with more to say."""


class Collect(HarborModel):
    """A command run after the agent's phase, before artifacts are kept."""

    command: str
    service: str = MAIN_SERVICE
    timeout_sec: float = 60.0
    user: str | int | None = None

    _check_service = field_validator("service")(_service)


class McpServer(HarborModel):
    """A tool server for the agent."""

    name: str
    transport: Literal["stdio", "sse", "streamable-http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("transport", mode="before")
    @classmethod
    def _http(cls, value: Any) -> Any:
        return "streamable-http" if value == "http" else value

    @field_validator("headers")
    @classmethod
    def _headers_hold_no_secret(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _HEADER.fullmatch(name) or "\r" in value or "\n" in value:
                raise ValueError(f"{name!r} is no HTTP header")
            if "${" in _REFERENCE.sub(" ", value):
                raise ValueError(f"the header {name!r} holds an invalid ${{…}}")
            if any("${" in (default or "") for _, default in _REFERENCE.findall(value)):
                raise ValueError(f"the header {name!r} holds an invalid ${{…}}")
            if _holds_credential(name, value):
                raise ValueError(f"the header {name!r} must name its secret as ${{VARIABLE}}")
        return headers

    @model_validator(mode="after")
    def _transport_has_what_it_needs(self) -> McpServer:
        if self.transport == "stdio":
            if not self.command:
                raise ValueError("transport 'stdio' needs a command")
            if self.headers:
                raise ValueError("transport 'stdio' has no headers")
        elif not self.url:
            raise ValueError(f"transport {self.transport!r} needs a url")
        return self


def _holds_credential(name: str, value: str) -> bool:
    secret = bool(_SECRET_NAME.search(name)) or name.lower() in ("cookie", "set-cookie")
    for variable, default in _REFERENCE.findall(value):
        if default and (secret or _SECRET_NAME.search(variable)):
            return True
    return secret and bool(value.strip()) and not _CREDENTIAL.fullmatch(value)
