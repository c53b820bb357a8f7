"""What a task asks of its sandboxes: honoured, or refused by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal

from training_gym.data.harbor import HarborTask
from training_gym.data.harbor.config import EnvironmentConfig
from training_gym.environments.harbor.build import Base
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.sandboxes import Network, Resources, SandboxProvider
from training_gym.spec.settings import Settings

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_MODES: Mapping[str, Literal["none", "public", "allowlist"]] = {
    "no-network": "none",
    "public": "public",
    "allowlist": "allowlist",
}


class Terms(Settings):
    """How to run tasks, where they leave it open or ask for more than there is."""

    base: Base = "image"
    """`host`: this machine's own programs instead of the image that a task names."""
    network: Literal["task", "none"] = "task"
    """`none`: no network, also where a task would have one."""
    agent_timeout_s: float = 600.0
    """Seconds for a solution whose task sets no limit."""


def resources_of(config: EnvironmentConfig, provider: SandboxProvider) -> Resources:
    """Limits of an environment; raises `EnvironmentFailure` for what no sandbox here has."""
    for name, value in (("gpus", config.gpus), ("tpu", config.tpu)):
        if value:
            raise EnvironmentFailure(
                f"the task asks for {name} = {value}, which {provider.name} sandboxes do not have",
                fix="run it where accelerators can be had",
            )
    if config.os != "linux":
        raise EnvironmentFailure(
            f"the task runs on {config.os}, {provider.name} sandboxes on Linux",
            fix="run it with Harbor on Windows",
        )
    given = {
        "cpus": config.cpus,
        "memory_mb": config.memory_mb,
        "disk_mb": config.storage_mb,
    }
    asked = {name: value for name, value in given.items() if value is not None}
    return Resources(**{"memory_mb": 2048, "disk_mb": 2048, "processes": 256, **asked})


def network_of(config: EnvironmentConfig, provider: SandboxProvider, terms: Terms) -> Network:
    """An environment's network; raises `EnvironmentFailure` where it cannot be granted."""
    if terms.network == "none":
        return Network()
    mode = _MODES[config.network_mode]
    if mode not in provider.capabilities().networks:
        raise EnvironmentFailure(
            f"the task asks for network_mode = {config.network_mode!r}, which {provider.name} "
            "sandboxes cannot grant",
            fix="use another provider, or --network none if the task works without",
        )
    return Network(mode=mode, allowed_hosts=tuple(config.allowed_hosts or ()))


def resolved(env: Mapping[str, str]) -> dict[str, str]:
    """Values with `${NAME}` and `${NAME:-default}` taken from this process's environment."""
    found = {}
    for key, value in env.items():
        match = _TEMPLATE.fullmatch(value)
        if match is None:
            found[key] = value
        elif match[1] in os.environ:
            found[key] = os.environ[match[1]]
        elif match[2] is not None:
            found[key] = match[2]
        else:
            raise EnvironmentFailure(
                f"the task needs the environment variable {match[1]}, which is not set",
                fix=f"set {match[1]}",
            )
    return found


def check_users(task: HarborTask) -> None:
    """Refuse users other than root, who is whom sandboxes of tasks run as."""
    config = task.config
    named = [("agent", config.agent.user), ("verifier", config.verifier.user)]
    for step in config.steps or ():
        named += [(f"{step.name}.agent", step.agent.user)]
        named += [(f"{step.name}.verifier", step.verifier.user)]
    for where, user in named:
        if user not in (None, "root", 0, "0"):
            raise EnvironmentFailure(
                f"{where}.user = {user!r} cannot be honoured: commands run as root in the sandbox",
                fix="leave user out, or run the task with Harbor",
            )


def check_services(task: HarborTask) -> None:
    """Refuse artifacts and hooks of services beside the main one."""
    config = task.config
    declared = [
        *config.artifacts,
        *(item for step in config.steps or () for item in step.artifacts),
    ]
    services = {item.service for item in declared if not isinstance(item, str)}
    services |= {hook.service for hook in config.verifier.collect}
    services |= {hook.service for step in config.steps or () for hook in step.verifier.collect}
    others = sorted(service for service in services if service not in (None, "main"))
    if others:
        raise EnvironmentFailure(
            f"the task has services beside the main one: {', '.join(others)}",
            fix="run it with Harbor's docker environment",
        )


def notes_of(task: HarborTask) -> list[str]:
    """What has no meaning here, because no agent of Harbor's runs."""
    environment = task.config.environment
    notes = [f"unknown key {name} left out, as Harbor does" for name in task.unknown]
    if environment.mcp_servers:
        notes.append("mcp_servers are for agents: not started")
    if environment.skills_dir is not None:
        notes.append("skills_dir is for agents: not used")
    phases = [task.config.agent, task.config.verifier]
    if any(phase.network_mode is not None for phase in phases):
        notes.append("network_mode of a phase: the environment's holds throughout")
    return notes
