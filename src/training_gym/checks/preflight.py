"""All checks in order, and what becomes of their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from training_gym.checks import data, definition, environment, model, reward, surroundings
from training_gym.checks.subject import Subject
from training_gym.spec.errors import (
    CheckError,
    CheckpointError,
    DataError,
    EngineError,
    EnvironmentFailure,
    GymError,
    ModelError,
    PlatformError,
    RecordsError,
    RewardError,
    SpecError,
)
from training_gym.spec.findings import Finding

Check = Callable[[Subject], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    surroundings.home_is_writable,
    surroundings.secrets_are_set,
    surroundings.requirements_are_installed,
    surroundings.sampler_is_installed,
    surroundings.torch_has_cuda,
    definition.engine_honours_all,
    definition.groups_have_a_baseline,
    definition.evaluations_can_run,
    definition.checkpoint_is_whole,
    model.model_can_be_read,
    model.adapter_names_layers,
    model.companion_can_be_read,
    surroundings.disk_has_room,
    data.tasks_can_be_loaded,
    data.tasks_suit_the_algorithm,
    data.tasks_suit_the_model,
    data.prompts_fit,
    environment.environments_can_play,
    reward.exactly_one_reward,
    reward.rewards_judge_anything,
)
"""From what costs nothing to what takes longest."""


_FORESEEN: dict[str, type[GymError]] = {
    "home": RecordsError,
    "disk": RecordsError,
    "secret": PlatformError,
    "requirement": PlatformError,
    "engine": EngineError,
    "recipe": SpecError,
    "eval": SpecError,
    "checkpoint": CheckpointError,
    "model": ModelError,
    "data": DataError,
    "environment": EnvironmentFailure,
    "reward": RewardError,
}
"""First part of a finding's code to the error that the run would have ended with."""


def run_checks(subject: Subject, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """Everything the checks find, in their order; a check that lacks what it needs is silent."""
    return [finding for check in checks for finding in check(subject)]


def raise_errors(findings: Iterable[Finding]) -> None:
    """Raise one `CheckError` that lists every error among the findings, if there is any."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return
    kinds = {_FORESEEN.get(finding.code.partition(".")[0], CheckError) for finding in errors}
    exit_code = kinds.pop().exit_code if len(kinds) == 1 else CheckError.exit_code
    if len(errors) == 1:
        raise CheckError(errors[0].message, fix=errors[0].fix, exit_code=exit_code)
    listed = [f"  {finding.message}\n    {finding.fix} [{finding.code}]" for finding in errors]
    raise CheckError(
        "\n".join([f"{len(errors)} things would make this run fail:", *listed]),
        fix="mend these, then launch again",
        exit_code=exit_code,
    )
