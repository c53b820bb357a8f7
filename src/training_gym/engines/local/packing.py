"""From trajectories to packed micro-batches: no padding, and a group's prompt computed once.

Every token that a loss covers brings its own coefficients (advantage, old log-probability,
weight), already normalised over the whole batch, so that how the batch is cut into micro-batches
never changes the gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.spec.episodes import Trajectory


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
    """Lay rows one after another; equal prompts are laid once, as prefix of their answers."""
    ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    prompts: dict[tuple[int, ...], int] = {}
    targets: list[tuple[int, int, float, float, float, int]] = []
    uses = Counter(_shared_prompt(row) for _, row in rows)
    for number, row in rows:
        trajectory = row.trajectory
        prompt = _shared_prompt(row)
        prompt_length = len(prompt)
        answer = trajectory.token_ids[prompt_length:]
        if prompt not in prompts:
            prompts[prompt] = len(ids)
            # A prompt that nobody shares and its answer are one segment.
            segments.append(Segment(len(ids), prompt_length + len(answer) * (uses[prompt] == 1)))
            positions.extend(range(prompt_length))
            ids.extend(prompt)
        prompt_start = prompts[prompt]
        answer_start = len(ids)
        if answer and uses[prompt] > 1:
            segments.append(Segment(answer_start, len(answer), (prompt_start,), prompt_length))
        positions.extend(range(prompt_length, prompt_length + len(answer)))
        ids.extend(answer)
        mask = trajectory.loss_mask
        for offset, token in enumerate(answer):
            place = prompt_length + offset
            if not mask[place]:
                continue
            source = answer_start + offset - 1 if offset else prompt_start + prompt_length - 1
            targets.append(
                (
                    source,
                    token,
                    row.advantages[place],
                    trajectory.logprobs[place],
                    row.weights[place],
                    number,
                )
            )
    columns = list(zip(*targets, strict=True)) if targets else [()] * 6

    def whole(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    def real(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    return MicroBatch(
        ids=whole(ids),
        positions=whole(positions),
        layout=PackedLayout(tuple(segments)),
        sources=whole(columns[0]),
        targets=whole(columns[1]),
        advantages=real(columns[2]),
        old_logprobs=real(columns[3]),
        weights=real(columns[4]),
        rows=whole(columns[5]),
    )
