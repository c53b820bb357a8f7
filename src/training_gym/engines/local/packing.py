"""From trajectories to packed micro-batches: no padding, and a group's prompt computed once.

Every token that a loss covers brings its own coefficients (advantage, old log-probability,
weight), already normalised over the whole batch, so that how the batch is cut into micro-batches
never changes the gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.slots import common_prefix
from training_gym.spec.engine import Column
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
    columns: Mapping[Column, Sequence[float]] = field(default_factory=dict)
    """What else the loss needs; the same names in every row."""


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
    sampler_logprobs: torch.Tensor
    """(M,) float32, from sampling."""
    weights: torch.Tensor
    """(M,) float32."""
    rows: torch.Tensor
    """(M,) index of the trajectory each target belongs to, in the order given."""
    places: torch.Tensor
    """(M,) index of each target among its trajectory's tokens."""
    columns: Mapping[Column, torch.Tensor]
    """(M,) float32 each."""

    @property
    def num_tokens(self) -> int:
        """Packed tokens."""
        return int(self.ids.numel())


def micro_batches(
    rows: Sequence[Row], token_budget: int, device: torch.device, *, together: int = 1
) -> Iterator[MicroBatch]:
    """Pack rows, prompt-sharing groups together, up to `token_budget` tokens each.

    Every `together` rows in a row share a prompt and are never parted, because the loss compares
    them. What is longer than the budget travels alone.
    """
    for chosen in _bins(rows, token_budget, together):
        yield pack([(index, rows[index]) for index in chosen], device)


def longest_unit(rows: Sequence[Row], together: int = 1) -> int:
    """Tokens of the longest rows that are never parted: no micro-batch can be smaller."""
    longest = 0
    for start in range(0, len(rows), together):
        prompt = len(shared_prompt(rows[start]))
        unit = rows[start : start + together]
        answers = sum(len(row.trajectory.token_ids) - prompt for row in unit)
        longest = max(longest, prompt + answers)
    return longest


def _bins(rows: Sequence[Row], token_budget: int, together: int) -> list[list[int]]:
    """Row numbers of each micro-batch; a prompt counts once per micro-batch it appears in."""
    by_prompt: dict[tuple[int, ...], list[range]] = {}
    for start in range(0, len(rows), together):
        unit = range(start, start + together)
        by_prompt.setdefault(shared_prompt(rows[start]), []).append(unit)
    bins: list[list[int]] = []
    used = token_budget
    for prompt, units in by_prompt.items():
        prompt_open = False
        for unit in units:
            answers = sum(len(rows[n].trajectory.token_ids) - len(prompt) for n in unit)
            cost = answers + (0 if prompt_open else len(prompt))
            if used + cost > token_budget or not bins:
                bins.append([])
                used = 0
                cost = answers + len(prompt)
            bins[-1].extend(unit)
            used += cost
            prompt_open = True
    return bins


def shared_prompt(row: Row) -> tuple[int, ...]:
    """Ids that rows of one group begin with."""
    return row.trajectory.token_ids[: row.trajectory.prompt_length]


def pack(rows: Sequence[tuple[int, Row]], device: torch.device) -> MicroBatch:
    """Lay rows one after another, what they share once.

    What all prompts begin with (a system prompt, shown examples) comes first, each different
    prompt's rest follows it, and the answers follow their prompts.
    """
    laid = _Laid()
    uses = Counter(shared_prompt(row) for _, row in rows)
    root = _common_start(list(uses))
    if root:
        laid.add(root, (), 0)
    prompts: dict[tuple[int, ...], _Prompt] = {}
    targets: list[_Target] = []
    for number, row in rows:
        prompt = shared_prompt(row)
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
    return _micro_batch(laid, targets, tuple(rows[0][1].columns), device)


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
    sampler_logprob: float
    weight: float
    row: int
    place: int
    further: tuple[float, ...]


def _targets(row: Row, number: int, prompt_end: int, answer_start: int) -> Iterator[_Target]:
    """What the loss covers of one row, whose answer is laid from `answer_start` on."""
    trajectory = row.trajectory
    further = tuple(row.columns.values())
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
            place,
            tuple(column[place] for column in further),
        )


def _micro_batch(
    laid: _Laid, targets: Sequence[_Target], names: Sequence[Column], device: torch.device
) -> MicroBatch:
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
        sampler_logprobs=column([target.sampler_logprob for target in targets], real),
        weights=column([target.weight for target in targets], real),
        rows=column([target.row for target in targets], whole),
        places=column([target.place for target in targets], whole),
        columns={
            name: column([target.further[number] for target in targets], real)
            for number, name in enumerate(names)
        },
    )


def joined(micros: Sequence[MicroBatch]) -> MicroBatch:
    """The targets of several micro-batches as one, for measuring; its tokens are the first's."""
    first = micros[0]

    def column(name: str) -> torch.Tensor:
        return torch.cat([getattr(micro, name) for micro in micros])

    return MicroBatch(
        ids=first.ids,
        positions=first.positions,
        layout=first.layout,
        sources=column("sources"),
        targets=column("targets"),
        advantages=column("advantages"),
        sampler_logprobs=column("sampler_logprobs"),
        weights=column("weights"),
        rows=column("rows"),
        places=column("places"),
        columns={name: torch.cat([m.columns[name] for m in micros]) for name in first.columns},
    )


def numbered(micro: MicroBatch, numbers: Sequence[int]) -> MicroBatch:
    """The same on the CPU, with `numbers[row]` in place of each row: those of a larger batch."""
    return MicroBatch(
        ids=micro.ids.cpu(),
        positions=micro.positions.cpu(),
        layout=micro.layout,
        sources=micro.sources.cpu(),
        targets=micro.targets.cpu(),
        advantages=micro.advantages.cpu(),
        sampler_logprobs=micro.sampler_logprobs.cpu(),
        weights=micro.weights.cpu(),
        rows=torch.tensor(numbers)[micro.rows.cpu()],
        places=micro.places.cpu(),
        columns={name: values.cpu() for name, values in micro.columns.items()},
    )
