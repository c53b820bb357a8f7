"""What the definition says by itself, before any model or data is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training_gym.checks.findings import error, raised, warning
from training_gym.checks.subject import Subject
from training_gym.records.checkpoints import read_checkpoint, verify
from training_gym.spec.algorithms import Distill, GivenAnswers, needs_a_group
from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding


def engine_honours_all(subject: Subject) -> Iterator[Finding]:
    """`engine.refuses`, `engine.approximates`: a setting would not mean what it says."""
    report = subject.engine.supports(subject.run)
    for entry in report.entries:
        message = f"the engine {report.engine!r} {{}} {entry.path}: {entry.reason}"
        if entry.verdict == "refused":
            yield error("engine.refuses", message.format("refuses"), entry.fix)
        elif entry.verdict == "approximated":
            yield warning("engine.approximates", message.format("approximates"), entry.fix)


def groups_have_a_baseline(subject: Subject) -> Iterator[Finding]:
    """`recipe.group_of_one`: there is nothing to compare an episode with."""
    recipe = subject.run.recipe
    if needs_a_group(recipe.algorithm) and recipe.group_size == 1:
        yield error(
            "recipe.group_of_one",
            f"group_size = 1, but {recipe.algorithm.kind} compares the episodes of a group: "
            "every advantage would be zero",
            "set group_size to 2 or more, such as 8",
        )


def evaluations_can_run(subject: Subject) -> Iterator[Finding]:
    """`eval.name`, `eval.every`: an evaluation would be confused with training or never run."""
    for evaluation in subject.run.evaluations:
        if evaluation.name == "train":
            yield error(
                "eval.name",
                "an evaluation is called 'train', the name of the training's own episodes",
                "give it another name",
            )
        if evaluation.every is not None and evaluation.every > subject.run.recipe.num_steps:
            yield warning(
                "eval.every",
                f"evaluation {evaluation.name!r} runs every {evaluation.every} steps, "
                f"but there are {subject.run.recipe.num_steps}",
                "it runs before the first and after the last step only; lower every",
            )


def checkpoint_is_whole(subject: Subject) -> Iterator[Finding]:
    """`checkpoint.invalid`: what the run shall start from is missing or damaged."""
    if subject.run.resume_from_checkpoint is None:
        return
    folder = Path(subject.run.resume_from_checkpoint)
    try:
        problems = verify(read_checkpoint(folder), hashes=False)
    except GymError as refused:
        yield raised("checkpoint.invalid", refused)
        return
    if problems:
        yield error(
            "checkpoint.invalid",
            f"the checkpoint {folder} is damaged: {problems[0]}",
            f"name another one of {folder.parent}",
        )


def is_supervised(subject: Subject) -> bool:
    """Whether training learns from given answers and plays no episodes."""
    return isinstance(subject.run.recipe.algorithm, GivenAnswers)


def needs_a_reward(subject: Subject) -> bool:
    """Whether training learns from rewards; with a teacher they are only reported."""
    return not isinstance(subject.run.recipe.algorithm, GivenAnswers | Distill)
