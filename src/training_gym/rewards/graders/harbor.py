"""Harbor's verifier: what becomes of /logs/verifier once a task's test script has run.

`reward.json`, a number or named numbers, wins over `reward.txt`; only finite numbers count; what
lay there before the tests is removed first. A verifier that fails to say a reward is an error,
never a zero.
"""

from __future__ import annotations

import json
import math
import posixpath
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from training_gym.data.harbor import HarborTask
from training_gym.data.harbor.config import Step
from training_gym.data.harbor.ignore import TaskIgnore
from training_gym.rewards.graders.verdict import Tampering
from training_gym.spec.sandboxes import MIB, ExecRequest, Sandbox, SandboxFileError
from training_gym.spec.settings import Settings

TESTS = "/tests"
LOGS = "/logs/verifier"
REWARD_FILES = ("reward.json", "reward.txt")
_LONGEST_REWARD = MIB

VerifierFault = Literal[
    "reward_missing", "reward_empty", "reward_invalid", "verifier_timeout", "verifier_killed"
]


class VerifierResult(Settings):
    """Rewards, or what kept the verifier from saying any."""

    rewards: dict[str, float] | None = None
    fault: VerifierFault | None = None
    reason: str = ""
    output: str = ""
    """The end of what the tests printed."""
    exit_code: int = 0
    leftovers: int = 0
    tampering: tuple[Tampering, ...] = ()
    tier: str = Field("")

    @property
    def value(self) -> float | None:
        """One number: `reward`, else the only one, else the mean."""
        if not self.rewards:
            return None
        if "reward" in self.rewards:
            return self.rewards["reward"]
        return math.fsum(self.rewards.values()) / len(self.rewards)


async def run_verifier(
    sandbox: Sandbox, task: HarborTask, step: Step | None, env: Mapping[str, str]
) -> VerifierResult:
    """Put the tests back, remove stale rewards, run the script, read the reward."""
    signs = await _stale(sandbox)
    bundled = task.verifier_image(step) is not None or _has_own_image(task, step)
    await _shell(sandbox, f"rm -rf {LOGS}/reward.json {LOGS}/reward.txt; mkdir -p {LOGS}")
    if not bundled:
        await _shell(sandbox, f"rm -rf {TESTS}; mkdir -p {TESTS}")
        for folder in task.tests_folders(step):
            await put_folder(sandbox, folder, TESTS, TaskIgnore(task.folder))
    script = f"{TESTS}/{task.test_script(step) or 'test.sh'}"
    timeout_s = (step.verifier if step is not None else task.config.verifier).timeout_sec
    await _shell(sandbox, f"chmod +x {shlex.quote(script)}")
    result = await sandbox.exec(
        ExecRequest(
            argv=("bash", "-c", f"({shlex.quote(script)}) > {LOGS}/test-stdout.txt 2>&1"),
            env=dict(env),
            timeout_s=timeout_s,
        )
    )
    found = {
        "output": await _tail(sandbox, f"{LOGS}/test-stdout.txt"),
        "exit_code": result.exit_code,
        "leftovers": result.leftovers,
        "tampering": signs,
        "tier": sandbox.tier,
    }
    if result.failure == "exec_timeout":
        reason = f"the tests took longer than {timeout_s:g} s"
        return VerifierResult(fault="verifier_timeout", reason=reason, **found)
    if result.failure is not None:
        return VerifierResult(fault="verifier_killed", reason=result.failure, **found)
    rewards, fault, reason = await read_rewards(sandbox)
    return VerifierResult(rewards=rewards, fault=fault, reason=reason, **found)


async def read_rewards(
    sandbox: Sandbox,
) -> tuple[dict[str, float] | None, VerifierFault | None, str]:
    """The rewards the tests wrote, or the fault and its reason."""
    for name in REWARD_FILES:
        try:
            data = await sandbox.read_file(f"{LOGS}/{name}", max_bytes=_LONGEST_REWARD)
        except SandboxFileError as error:
            if await _exists(sandbox, f"{LOGS}/{name}"):
                return None, "reward_invalid", f"{name}: {error.message}"
            continue
        return parse_rewards(name, data)
    return None, "reward_missing", f"the tests wrote no reward to {LOGS}"


def parse_rewards(
    name: str, data: bytes
) -> tuple[dict[str, float] | None, VerifierFault | None, str]:
    """What one reward file says."""
    if not data:
        return None, "reward_empty", f"{name} is empty"
    try:
        text = data.decode()
        given = json.loads(text) if name.endswith(".json") else float(text)
    except (ValueError, RecursionError):
        return None, "reward_invalid", f"{name} is not readable: {data[:60]!r}"
    named = given if isinstance(given, dict) else {"reward": given}
    for key, value in named.items():
        if not isinstance(value, int | float):
            return None, "reward_invalid", f"{name}: {key} = {value!r:.60} is no number"
        if not _is_finite(value):
            return None, "reward_invalid", f"{name}: {key} = {value!r:.60} is not finite"
    return {key: float(value) for key, value in named.items()}, None, ""


async def put_folder(
    sandbox: Sandbox, folder: Path, target: str, ignore: TaskIgnore | None = None
) -> None:
    """Copy a host folder's files, links resolved, into the sandbox."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or (ignore is not None and ignore.leaves_out(path)):
            continue
        mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
        where = posixpath.join(target, path.relative_to(folder).as_posix())
        await sandbox.write_file(where, path.read_bytes(), mode=mode)


def _has_own_image(task: HarborTask, step: Step | None) -> bool:
    if task.config.verifier_mode(step) == "shared":
        return False
    levels = [task.config.verifier, *([step.verifier] if step is not None else [])]
    return any(level.environment and level.environment.docker_image for level in levels)


async def _stale(sandbox: Sandbox) -> tuple[Tampering, ...]:
    """Rewards that were there before the tests ran."""
    found = []
    for name in REWARD_FILES:
        if await _exists(sandbox, f"{LOGS}/{name}"):
            evidence = f"{LOGS}/{name} was there before the tests ran"
            found.append(Tampering(kind="verdict_file", evidence=evidence))
    return tuple(found)


async def _exists(sandbox: Sandbox, path: str) -> bool:
    quoted = shlex.quote(path)
    result = await sandbox.exec(
        ExecRequest(argv=("/bin/sh", "-c", f"[ -e {quoted} ] || [ -L {quoted} ]"), timeout_s=30)
    )
    return result.ok


async def _shell(sandbox: Sandbox, script: str) -> None:
    result = await sandbox.exec(ExecRequest(argv=("/bin/sh", "-c", script), timeout_s=60))
    if not result.ok:
        raise SandboxFileError(
            f"{script!r} failed in the verifier's sandbox: {result.error_text.strip()[-200:]}",
            fix="let the verifier's user own /tests and /logs",
        )


async def _tail(sandbox: Sandbox, path: str) -> str:
    try:
        data = await sandbox.read_file(path, max_bytes=16 * MIB)
    except SandboxFileError:
        return ""
    return data[-2000:].decode("utf-8", "replace")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
