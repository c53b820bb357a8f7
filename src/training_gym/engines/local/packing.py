"""From trajectories to packed micro-batches: no padding, and a group's prompt computed once.

Every token that a loss covers brings its own coefficients (advantage, old log-probability,
weight), already normalised over the whole batch, so that how the batch is cut into micro-batches
never changes the gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.slots import common_prefix
from training_gym.spec.episodes import Trajectory

MIN_SHARED_TOKENS = 8
"""A shorter common start of different prompts is not worth a segment of its own."""


@dataclass(frozen=True)
class Row:
    """One trajectory with what the loss needs for each of its tokens (all of length T)."""

    trajectory: Trajectory
    advantages: Sequence[float]
    weights: Sequence[float]
    """Weight of each token in the batch's loss; 0 where the loss mask is off."""


@dataclass(frozen=True)
class MicroBatch:
    """N packed tokens, and the M of them that are targets of the loss."""

    ids: torch.Tensor
    """(N,) int64."""
    positions: torch.Tensor
    """(N,) int64."""
    layout: PackedLayout
    sources: torch.Tensor
    """(M,) index of the packed token whose hidden state predicts each target."""
    targets: torch.Tensor
    """(M,) target ids."""
    advantages: torch.Tensor
    """(M,) float32."""
    old_logprobs: torch.Tensor
    """(M,) float32, from sampling."""
    weights: torch.Tensor
    """(M,) float32."""
    rows: torch.Tensor
    """(M,) index of the trajectory each target belongs to, in the order given."""

    @property
    def num_tokens(self) -> int:
        """Packed tokens."""
        return int(self.ids.numel())


def micro_batches(
    rows: Sequence[Row], token_budget: int, device: torch.device
) -> Iterator[MicroBatch]:
    """Pack rows, prompt-sharing groups together, up to `token_budget` tokens each.

    A row longer than the budget travels alone.
    """
    for chosen in _bins(rows, token_budget):
        yield pack([(index, rows[index]) for index in chosen], device)


def _bins(rows: Sequence[Row], token_budget: int) -> list[list[int]]:
    """Row numbers of each micro-batch; a prompt counts once per micro-batch it appears in."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(rows):
        by_prompt.setdefault(_shared_prompt(row), []).append(index)
    bins: list[list[int]] = []
    used = token_budget
    for prompt, members in by_prompt.items():
        prompt_open = False
        for index in members:
            answer = len(rows[index].trajectory.token_ids) - len(prompt)
            cost = answer + (0 if prompt_open else len(prompt))
            if used + cost > token_budget or not bins:
                bins.append([])
                used = 0
                cost = answer + len(prompt)
            bins[-1].append(index)
            used += cost
            prompt_open = True
    return bins


def _shared_prompt(row: Row) -> tuple[int, ...]:
    return row.trajectory.token_ids[: row.trajectory.prompt_length]


def pack(rows: Sequence[tuple[int, Row]], device: torch.device) -> MicroBatch:
    """Lay rows one after another, what they share once.

    What all prompts begin with (a system prompt, shown examples) comes first, each different
    prompt's rest follows it, and the answers follow their prompts.
    """
    laid = _Laid()
    uses = Counter(_shared_prompt(row) for _, row in rows)
    root = _common_start(list(uses))
    if root:
        laid.add(root, (), 0)
    prompts: dict[tuple[int, ...], _Prompt] = {}
    targets: list[_Target] = []
    for number, row in rows:
        prompt = _shared_prompt(row)
        answer = row.trajectory.token_ids[len(prompt) :]
        alone = uses[prompt] == 1  # then prompt and answer are one segment
        if prompt not in prompts:
            rest = prompt[len(root) :]
            start = laid.add(rest + answer if alone else rest, (0,) if root else (), len(root))
            prompts[prompt] = _Prompt((0, start) if root else (start,), end=start + len(rest))
        known = prompts[prompt]
        answer_start = known.end if alone else len(laid.ids)
        targets += _targets(row, number, known.end, answer_start)
        if answer and not alone:
            laid.add(answer, known.starts, len(prompt))
    return _micro_batch(laid, targets, device)


class _Prompt(NamedTuple):
    """Where a prompt was laid."""

    starts: tuple[int, ...]
    """Of its segments."""
    end: int


@dataclass
class _Laid:
    """Tokens laid so far."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def add(self, tokens: Sequence[int], prefix: tuple[int, ...], prefix_length: int) -> int:
        """Lay a segment; where it starts."""
        start = len(self.ids)
        self.segments.append(Segment(start, len(tokens), prefix, prefix_length))
        self.positions.extend(range(prefix_length, prefix_length + len(tokens)))
        self.ids.extend(tokens)
        return start


def _common_start(prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """What different prompts all begin with, leaving each at least one token of its own."""
    first, last = min(prompts), max(prompts)
    if first == last:
        return ()
    shared = common_prefix(first, last)  # the extremes of an order share what all share
    shared = min(shared, min(len(prompt) for prompt in prompts) - 1)
    return first[:shared] if shared >= MIN_SHARED_TOKENS else ()


class _Target(NamedTuple):
    """A token the loss covers; the fields become columns of the micro-batch."""

    source: int
    token: int
    advantage: float
    old_logprob: float
    weight: float
    row: int


def _targets(row: Row, number: int, prompt_end: int, answer_start: int) -> Iterator[_Target]:
    """What the loss covers of one row, whose answer is laid from `answer_start` on."""
    trajectory = row.trajectory
    for place, (token, on) in enumerate(
        zip(trajectory.token_ids, trajectory.loss_mask, strict=True)
    ):
        offset = place - trajectory.prompt_length
        if not on or offset < 0:
            continue
        source = answer_start + offset - 1 if offset else prompt_end - 1
        yield _Target(
            source,
            token,
            row.advantages[place],
            trajectory.logprobs[place],
            row.weights[place],
            number,
        )


def _micro_batch(laid: _Laid, targets: Sequence[_Target], device: torch.device) -> MicroBatch:
    def column(values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    whole, real = torch.int64, torch.float32
    return MicroBatch(
        ids=column(laid.ids, whole),
        positions=column(laid.positions, whole),
        layout=PackedLayout(tuple(laid.segments)),
        sources=column([target.source for target in targets], whole),
        targets=column([target.token for target in targets], whole),
        advantages=column([target.advantage for target in targets], real),
        old_logprobs=column([target.old_logprob for target in targets], real),
        weights=column([target.weight for target in targets], real),
        rows=column([target.row for target in targets], whole),
    )
