"""What a teacher says of each token the student drew, whether or not they share a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.algorithms.alignment import shared_spans, span_advantages
from training_gym.engines.local.companions import Companions, Scorer, score_trajectories
from training_gym.engines.local.credit import Columns, Group, sampled, spread, trajectories_of
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.errors import EngineError
from training_gym.spec.messages import assistant
from training_gym.spec.recipe import Recipe
from training_gym.spec.run import RunSpec
from training_gym.spec.tasks import Task
from training_gym.spec.text import TextCodec

ANCHOR_TOKENS = 8
"""Texts of prefixes are compared in windows of about so many tokens."""


def teacher_advantages(groups: Sequence[Group], columns: Columns) -> list[list[float]]:
    """Log p_teacher - log p_student of each sampled token: minus k1 of the reverse KL.

    The advantage of on-policy distillation (Lu 2025). All zeros where the whole vocabulary is
    compared instead, which needs none.
    """
    trajectories = trajectories_of(groups)
    if "reference_logprobs" not in columns:
        return [[0.0] * len(trajectory.token_ids) for trajectory in trajectories]
    found = []
    for trajectory, teacher in zip(trajectories, columns["reference_logprobs"], strict=True):
        pairs = zip(trajectory.logprobs, teacher, trajectory.loss_mask, strict=True)
        found.append([theirs - own if ours else 0.0 for own, theirs, ours in pairs])
    return found


class Translation:
    """A teacher with another tokenizer: it reads the same prompt and answer in its own tokens.

    The prompt is rendered by the teacher's own chat template, the answer is the student's text, and
    the end of the student's turn is compared with the end of the teacher's. One turn an episode:
    how a conversation goes on is a matter of each one's template.
    """

    def __init__(
        self,
        teacher: Scorer,
        teacher_codec: TextCodec,
        student_codec: TextCodec,
        recipe: Recipe,
        *,
        token_budget: int,
    ) -> None:
        """`teacher_codec` belongs to `teacher`."""
        self._teacher = teacher
        self._theirs = teacher_codec
        self._ours = student_codec
        self._temperature = recipe.sampling.temperature
        self._chunk = recipe.engine.logprob_chunk_tokens
        self._token_budget = token_budget

    def advantages(self, groups: Sequence[Group]) -> list[list[float]]:
        """Advantage of every token of every trajectory; 0 where the loss does not cover it."""
        rows = [(e.task, t) for group in groups for _, e, t in group.rows]
        readings = [self._reading(task, trajectory) for task, trajectory in rows]
        scores = score_trajectories(
            self._teacher,
            [reading for reading, _ in readings],
            temperature=self._temperature,
            token_budget=self._token_budget,
            chunk=self._chunk,
        )
        found = []
        for (_, trajectory), (reading, text), scored in zip(rows, readings, scores, strict=True):
            spans = shared_spans(
                self._ends(self._ours, sampled_ids(trajectory), text),
                self._ends(self._theirs, sampled_ids(reading), text),
            )
            advantages = span_advantages(
                sampled(trajectory, trajectory.logprobs), sampled(reading, scored), spans
            )
            found.append(spread(trajectory, advantages))
        return found

    def _reading(self, task: Task, trajectory: Trajectory) -> tuple[Trajectory, str]:
        """Prompt and answer in the teacher's tokens, and the answer's text."""
        codec = self._theirs
        if isinstance(task.prompt, str):
            prompt = [*codec.begin(), *codec.encode(task.prompt)]
        else:
            prompt = codec.encode(codec.render(task.prompt))
        ids = sampled_ids(trajectory)
        text = self._ours.decode_visible(ids)
        answer = codec.encode(text)
        if ids and ids[-1] in self._ours.stop_ids:
            answer = [*answer, end_of_turn(codec, task)]
        length = len(prompt) + len(answer)
        reading = Trajectory(
            token_ids=(*prompt, *answer),
            flags=(PROMPT,) * len(prompt) + (SAMPLED,) * len(answer),
            logprobs=(0.0,) * length,
            versions=(-1,) * length,
            prompt_length=len(prompt),
        )
        return reading, text

    def _ends(self, codec: TextCodec, ids: Sequence[int], text: str) -> list[int | None]:
        """Where each token ends in the text; the token that ends the turn counts one more."""
        stopped = bool(ids) and ids[-1] in codec.stop_ids
        ends = text_ends(codec, ids[:-1] if stopped else ids, text)
        return [*ends, len(text) + 1] if stopped else ends


def sampled_ids(trajectory: Trajectory) -> list[int]:
    """The tokens that the loss covers."""
    pairs = zip(trajectory.token_ids, trajectory.loss_mask, strict=True)
    return [token for token, on in pairs if on]


def text_ends(codec: TextCodec, ids: Sequence[int], text: str) -> list[int | None]:
    """Characters of `text` up to and including each token; None within a character.

    Tokens are read in short windows that begin one token before a known boundary, because some
    decoders treat the first token of a text in a way of their own.
    """
    ends: list[int | None] = []
    anchor = known = 0
    for number in range(1, len(ids) + 1):
        before = codec.decode_visible(ids[max(anchor - 1, 0) : anchor])
        piece = codec.decode_visible(ids[max(anchor - 1, 0) : number])[len(before) :]
        end = known + len(piece)
        clean = text[known:end] == piece and "\N{REPLACEMENT CHARACTER}" not in piece
        ends.append(end if clean else None)
        if clean and number - anchor >= ANCHOR_TOKENS:
            anchor, known = number, end
    return ends


def end_of_turn(codec: TextCodec, task: Task) -> int:
    """The token that ends an answer to this task: the last stop token of a rendered one."""
    if isinstance(task.prompt, str):
        return min(codec.stop_ids)
    answered = codec.render([*task.prompt, assistant("a")], add_generation_prompt=False)
    stops = [token for token in codec.encode(answered) if token in codec.stop_ids]
    return stops[-1] if stops else min(codec.stop_ids)


def translation_for(
    run: RunSpec, companions: Companions, codec: TextCodec, *, token_budget: int
) -> Translation | None:
    """The translation between the run's student and its teacher; None: they need none.

    Raises `EngineError` where episodes are more than one answer to a prompt.
    """
    if companions.reference is None or companions.translated is None:
        return None
    if run.environment is not None:
        raise EngineError(
            "the teacher has another tokenizer, and the episodes of an environment have turns that "
            "each tokenizer's template writes in its own way",
            fix="leave environment out, or take a teacher with the student's tokenizer",
        )
    return Translation(
        companions.reference, companions.translated, codec, run.recipe, token_budget=token_budget
    )
