"""The tasks: whether they can be read, suit algorithm and model, and fit the context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training_gym.checks.definition import is_supervised
from training_gym.checks.findings import error, note, raised, warning
from training_gym.checks.subject import Subject
from training_gym.planning.search import longest_answer
from training_gym.spec.algorithms import Preference
from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding
from training_gym.spec.tasks import Task


def tasks_can_be_loaded(subject: Subject) -> Iterator[Finding]:
    """`data.unreadable`, `data.empty`: there is nothing to train or evaluate on."""
    sets = {"training": subject.training, **subject.evaluations}
    told = set()
    for name, found in sets.items():
        if isinstance(found, GymError):
            if str(found) not in told:
                yield raised("data.unreadable", found)
            told.add(str(found))
        elif not found.tasks:
            which = "the dataset" if name == "training" else f"the dataset of evaluation {name!r}"
            yield error(
                "data.empty",
                f"{which} has no usable task",
                "check its rows, and limit and eval_fraction",
            )


def tasks_suit_the_algorithm(subject: Subject) -> Iterator[Finding]:
    """`data.no_answers`, `data.few`: supervised training lacks answers; a batch repeats tasks."""
    if isinstance(subject.training, GymError) or not subject.training.tasks:
        return
    tasks = subject.training.tasks
    if is_supervised(subject):
        without = [task for task in tasks if task.target is None or not task.target.text]
        if without:
            yield error(
                "data.no_answers",
                f"{len(without)} of {len(tasks)} tasks have no answer to imitate, "
                f"such as {without[0].prompt_text[:40]!r}",
                "name the column with the answers: output_column=…",
            )
        yield from _rejected_answers(subject, tasks)
    elif len(tasks) < subject.run.recipe.prompts_per_batch:
        yield warning(
            "data.few",
            f"{len(tasks)} task(s), but a batch takes {subject.run.recipe.prompts_per_batch}: "
            "tasks repeat within a batch",
            "add tasks, or lower prompts_per_batch",
        )


def _rejected_answers(subject: Subject, tasks: Sequence[Task]) -> Iterator[Finding]:
    """`data.no_rejected`, `data.rejected_unused`: pairs are needed, or are there for nothing."""
    wanted = isinstance(subject.run.recipe.algorithm, Preference)
    unpaired = [task for task in tasks if task.rejected_target is None]
    if wanted and unpaired:
        yield error(
            "data.no_rejected",
            f"{len(unpaired)} of {len(tasks)} tasks have no answer to avoid, "
            f"such as {unpaired[0].prompt_text[:40]!r}",
            "name the column with the rejected answers: rejected_column=…",
        )
    elif not wanted and not unpaired:
        yield note(
            "data.rejected_unused",
            f"all {len(tasks)} tasks have a rejected answer, which sft does not learn from",
            "learn preferences with algorithm=DPO()",
        )


def tasks_suit_the_model(subject: Subject) -> Iterator[Finding]:
    """`model.no_chat_template`: a base model cannot take messages."""
    if isinstance(subject.model, GymError) or subject.template_sha256 is not None:
        return
    chats = [task for task in subject.all_tasks if not isinstance(task.prompt, str)]
    if chats:
        yield error(
            "model.no_chat_template",
            f"{subject.run.model} has no chat template (a base model), "
            f"but {len(chats)} tasks are conversations",
            'set input_format="raw" to complete texts, or take an instruct model',
        )


def prompts_fit(subject: Subject) -> Iterator[Finding]:
    """`data.too_long`, `data.lengths_deferred`, `model.tokenizer`, `model.template_refuses`."""
    if isinstance(subject.architecture, GymError) or not subject.all_tasks:
        return
    context = subject.architecture.max_context_tokens
    limit = subject.run.recipe.max_prompt_tokens or context - longest_answer(subject.run)
    if limit < 1:
        return  # the plan says so, naming the answer's length
    lengths = subject.prompt_tokens
    if lengths is None:
        yield note(
            "data.lengths_deferred",
            f"prompts are measured in the job: those beyond {limit} tokens are left out there",
            "to measure them here: pip install 'training-gym[local]'",
        )
        return
    if isinstance(lengths, GymError):
        whose = "tokenizer" if lengths is subject.codec else "template_refuses"
        yield raised(f"model.{whose}", lengths)
        return
    too_long = [length for length in lengths if length > limit]
    if not too_long:
        return
    message = (
        f"{len(too_long)} of {len(lengths)} prompts measured are longer than {limit} tokens "
        f"(the longest has {max(too_long)})"
    )
    if len(too_long) == len(lengths):
        yield error("data.too_long", message, "raise max_prompt_tokens, or shorten the prompts")
    else:
        yield warning("data.too_long", f"{message} and are left out", "raise max_prompt_tokens")
