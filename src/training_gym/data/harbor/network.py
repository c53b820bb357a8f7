"""Network policies of Harbor tasks: modes, and allowlists in one spelling."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from pydantic import field_validator, model_validator

from training_gym.data.harbor.model import HarborModel

NetworkMode = Literal["no-network", "public", "allowlist"]

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def canonical_host(entry: str) -> str:
    """A host name, `*.name`, address or range in canonical spelling; raises `ValueError`."""
    host = entry.strip().lower().rstrip(".")
    if "/" in host or ":" in host:
        return _canonical_address(host, entry)
    name = host.removeprefix("*.")
    if name != host and _is_address(name):
        raise ValueError(f"the wildcard {entry!r} must stand before a host name, not an address")
    if not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(f"{entry!r} is no host name, address or address range")
    return host


def _canonical_address(host: str, entry: str) -> str:
    try:
        if "%" in host:
            raise ValueError
        if "/" in host:
            return ipaddress.ip_network(host, strict=True).compressed
        return ipaddress.IPv6Address(host).compressed
    except ValueError:
        raise ValueError(
            f"{entry!r} must be a host name, an address or a range: no URL, port or path"
        ) from None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class _AllowedHosts(HarborModel):
    allowed_hosts: list[str] | None = None

    @field_validator("allowed_hosts")
    @classmethod
    def _canonical(cls, hosts: list[str] | None) -> list[str] | None:
        return None if hosts is None else [canonical_host(host) for host in hosts]


class PhaseNetwork(_AllowedHosts):
    """What a phase (agent, verifier) changes of its environment's policy; None: nothing."""

    network_mode: NetworkMode | None = None

    @model_validator(mode="after")
    def _hosts_need_an_allowlist(self) -> PhaseNetwork:
        if self.network_mode is None and self.allowed_hosts is not None:
            raise ValueError("allowed_hosts is given without network_mode = 'allowlist'")
        _refuse_stray_hosts(self.network_mode, self.allowed_hosts)
        return self


class BaselineNetwork(_AllowedHosts):
    """An environment's policy."""

    network_mode: NetworkMode = "public"

    @model_validator(mode="after")
    def _hosts_need_an_allowlist(self) -> BaselineNetwork:
        _refuse_stray_hosts(self.network_mode, self.allowed_hosts)
        return self


def _refuse_stray_hosts(mode: Any, hosts: list[str] | None) -> None:
    if mode != "allowlist" and hosts:
        raise ValueError("allowed_hosts is given without network_mode = 'allowlist'")
