"""One batch of learning from given answers: imitate them, or prefer one to another."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.data import TaskStream
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.drawing import RunSampler
from training_gym.engines.local.objectives import columns_before_training
from training_gym.engines.local.state import Progress
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.spec.algorithms import Preference
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.errors import DataError, ModelError
from training_gym.spec.messages import Message
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import WeightUpdate
from training_gym.spec.tasks import Task
from training_gym.spec.text import TextCodec


class ImitationLearner:
    """Learns from given answers: to give them, or to prefer the chosen to the rejected."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        tasks: TaskStream,
        codec: TextCodec,
        sampler: RunSampler,
        trainer: LocalTrainer,
        compute: Compute,
        max_sequence_tokens: int,
    ) -> None:
        """The sampler only hears that the weights have changed: evaluations use it."""
        self._recipe = recipe
        self._tasks = tasks
        self._codec = codec
        self._sampler = sampler
        self._trainer = trainer
        self._compute = compute
        self._max_sequence_tokens = max_sequence_tokens

    async def learn(self, progress: Progress) -> tuple[Progress, dict[str, float]]:
        """Take one batch of tasks and update the weights from their answers."""
        tasks = self._tasks.take(self._recipe.prompts_per_batch)
        given = [self._example(task) for task in tasks]
        kept = [example for example in given if self._fits(example)]
        metrics = {"examples": float(len(kept)), "examples_too_long": float(len(given) - len(kept))}
        step, version = progress.optimizer_step, progress.policy_version
        if kept:
            batch = await self._compute.run(self._batch, kept)
            metrics |= await self._compute.run(self._trainer.step, batch)
            step, version = step + 1, version + 1
            await self._sampler.update_weights(
                WeightUpdate(version=version, base_version=version - 1)
            )
        progress = progress.after(
            batch=progress.batch + 1,
            optimizer_step=step,
            policy_version=version,
            drawn=progress.drawn + len(tasks),
            tasks=self._tasks.state(),
        )
        return progress, metrics

    async def close(self) -> None:
        """Nothing is in play."""

    def _example(self, task: Task) -> tuple[Trajectory, ...]:
        """The answer to imitate, or the chosen one and the rejected one."""
        chosen = demonstration(task, self._codec)
        if not isinstance(self._recipe.algorithm, Preference):
            return (chosen,)
        return chosen, rejected_demonstration(task, self._codec)

    def _fits(self, example: tuple[Trajectory, ...]) -> bool:
        return all(len(row.token_ids) <= self._max_sequence_tokens for row in example)

    def _batch(self, examples: Sequence[tuple[Trajectory, ...]]) -> TrainingBatch:
        """The examples' rows; each example weighs the same."""
        rows = tuple(row for example in examples for row in example)
        needed = columns_before_training(self._recipe)
        return TrainingBatch(
            trajectories=rows,
            advantages=tuple((0.0,) * len(row.token_ids) for row in rows),
            weights=tuple(1 / len(example) for example in examples for _ in example),
            columns=self._trainer.annotate(rows) if needed else {},
        )


def demonstration(task: Task, codec: TextCodec) -> Trajectory:
    """The task's prompt and its answer, end of turn included, with the loss on the answer.

    Raises `DataError` for a task without a text to imitate.
    """
    target = task.target
    if target is None:
        raise DataError(
            f"task {task.id} has no answer to imitate: {task.answer!r:.60}",
            fix="name the column of the text to learn in output_column",
        )
    return answered(task, target, codec)


def rejected_demonstration(task: Task, codec: TextCodec) -> Trajectory:
    """The task's prompt and the answer to avoid; raises `DataError` where there is none."""
    rejected = task.rejected_target
    if rejected is None:
        raise DataError(
            f"task {task.id} has no rejected answer: {task.rejected!r:.60}",
            fix="name the column of the answer to avoid in rejected_column",
        )
    return answered(task, rejected, codec)


def answered(task: Task, target: Message, codec: TextCodec) -> Trajectory:
    """The task's prompt and `target`, end of turn included, with the loss on the latter."""
    if isinstance(task.prompt, str):
        prompt = [*codec.begin(), *codec.encode(task.prompt)]
        answer = [*codec.encode(target.text), *sorted(codec.stop_ids)[:1]]
    else:
        prompt, answer = _rendered(task.prompt, target, codec)
    if not prompt:
        raise DataError(
            f"task {task.id} has an empty prompt, and this model has no token to begin with",
            fix="give every task a prompt",
        )
    return Trajectory(
        token_ids=(*prompt, *answer),
        flags=(PROMPT,) * len(prompt) + (SAMPLED,) * len(answer),
        logprobs=(0.0,) * (len(prompt) + len(answer)),
        versions=(-1,) * (len(prompt) + len(answer)),
        prompt_length=len(prompt),
    )


def _rendered(
    messages: Sequence[Message], target: Message, codec: TextCodec
) -> tuple[list[int], list[int]]:
    """Ids of the prompt and of the answer as the chat template writes them, up to its stop."""
    before = codec.render(messages, add_generation_prompt=True)
    whole = codec.render([*messages, target], add_generation_prompt=False)
    if not whole.startswith(before):
        raise ModelError(
            "the chat template writes an answer differently from its own generation prompt",
            fix="use a model whose template keeps the prompt as a prefix, or input_format='raw'",
        )
    answer = codec.encode(whole[len(before) :])
    stops = [place for place, token in enumerate(answer) if token in codec.stop_ids]
    # What the template puts behind the end of the turn is never sampled, so it is not learned.
    return codec.encode(before), answer[: stops[-1] + 1] if stops else answer
