"""From judged groups to what each token is credited with: advantages, and a value head's targets.

Pure functions. Numbers per token run over the tokens the loss covers, in their order; where it does
not, they are 0 and mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from training_gym.algorithms.advantages import (
    gae,
    group_centred,
    group_relative,
    leave_one_out,
    normalized,
    returns_to_go,
    token_rewards,
)
from training_gym.algorithms.divergences import kl_estimates
from training_gym.spec.algorithms import (
    PPO,
    RLOO,
    PolicyAlgorithm,
    ReinforcePlusPlus,
)
from training_gym.spec.engine import Column, TrainingBatch
from training_gym.spec.episodes import SAMPLED, Episode, Trajectory
from training_gym.spec.loss_terms import RewardKL

Columns = Mapping[Column, Sequence[Sequence[float]]]
"""Per trajectory of a batch, in the order of `Group.rows`, one value per token."""


@dataclass
class Group:
    """The judged episodes of one task, with the rewards that advantages come from."""

    episodes: list[Episode]
    rewards: list[float]

    @property
    def informative(self) -> bool:
        """Whether comparing the episodes teaches anything: some agent's rewards differ."""
        return any(len(set(rewards.values())) > 1 for rewards in self.by_agent().values())

    def by_agent(self) -> dict[str, dict[int, float]]:
        """Each agent's reward in the episodes it took part in, by their places in the group."""
        found: dict[str, dict[int, float]] = {}
        for place, _, trajectory in self.rows:
            found.setdefault(trajectory.agent, {})[place] = self.reward(place, trajectory.agent)
        return found

    def reward(self, place: int, agent: str) -> float:
        """What an episode was worth to one agent: its own score, where it has one."""
        whole, score = self.rewards[place], self.episodes[place].score
        if score is None or agent not in (score.agents or {}):
            return whole
        assert score.agents is not None
        return score.agents[agent] + whole - score.value  # what shaping added counts for all

    @property
    def rows(self) -> list[tuple[int, Episode, Trajectory]]:
        """Every trajectory with its episode and that episode's place in the group."""
        return [
            (place, episode, trajectory)
            for place, episode in enumerate(self.episodes)
            for trajectory in episode.trajectories
        ]


@dataclass(frozen=True)
class Credited:
    """One trajectory, ready to be learned from."""

    trajectory: Trajectory
    share: float
    """Part of its episode's sampled tokens."""
    advantages: Sequence[float]
    columns: Mapping[Column, Sequence[float]] = field(default_factory=dict)


def trajectories_of(groups: Sequence[Group]) -> list[Trajectory]:
    """Every trajectory, in the order in which columns are given."""
    return [trajectory for group in groups for _, _, trajectory in group.rows]


def credit(
    groups: Sequence[Group], algorithm: PolicyAlgorithm, columns: Columns
) -> list[list[Credited]]:
    """Each group's trajectories with their advantages, as `algorithm` has them."""
    penalties = _penalties(trajectories_of(groups), algorithm, columns)
    if isinstance(algorithm, PPO):
        advantages, returns = _by_values(groups, algorithm, columns, penalties)
        columns = {**columns, "returns": returns}
    elif isinstance(algorithm, ReinforcePlusPlus):
        advantages = _over_the_batch(groups, algorithm, penalties)
    else:
        advantages = _within_groups(groups, algorithm, penalties)
    return with_advantages(groups, advantages, columns)


def with_advantages(
    groups: Sequence[Group], advantages: Sequence[Sequence[float]], columns: Columns
) -> list[list[Credited]]:
    """Each group's trajectories with the given numbers, which run through all of them."""
    credited, number = [], 0
    for group in groups:
        rows = []
        for _, episode, trajectory in group.rows:
            rows.append(
                Credited(
                    trajectory,
                    trajectory.num_sampled / max(episode.num_tokens, 1),
                    advantages[number],
                    {name: values[number] for name, values in columns.items()},
                )
            )
            number += 1
        credited.append(rows)
    return credited


def training_batch(credited: Sequence[Credited]) -> TrainingBatch:
    """What the trainer takes; an episode's shares sum to 1 over its rows."""
    names = credited[0].columns if credited else {}
    return TrainingBatch(
        trajectories=tuple(row.trajectory for row in credited),
        advantages=tuple(tuple(row.advantages) for row in credited),
        weights=tuple(row.share for row in credited),
        columns={name: tuple(tuple(row.columns[name]) for row in credited) for name in names},
    )


def sampled(trajectory: Trajectory, values: Sequence[float]) -> list[float]:
    """The values of the tokens that the loss covers."""
    return [value for value, on in zip(values, trajectory.loss_mask, strict=True) if on]


def spread(trajectory: Trajectory, values: Sequence[float]) -> list[float]:
    """Values of the tokens that the loss covers, put back to their places among all tokens."""
    left = iter(values)
    return [next(left) if on else 0.0 for on in trajectory.loss_mask]


def _penalties(
    trajectories: Sequence[Trajectory], algorithm: PolicyAlgorithm, columns: Columns
) -> list[list[float]] | None:
    """β KL of each token the loss covers, where the KL is taken from the reward."""
    kl = algorithm.kl
    if not isinstance(kl, RewardKL):
        return None
    found = []
    for trajectory, reference in zip(trajectories, columns["reference_logprobs"], strict=True):
        estimates = kl_estimates(
            torch.tensor(sampled(trajectory, trajectory.logprobs), dtype=torch.float64),
            torch.tensor(sampled(trajectory, reference), dtype=torch.float64),
            kl.estimator,
        )
        found.append((kl.coefficient * estimates).tolist())
    return found


def _within_groups(
    groups: Sequence[Group], algorithm: PolicyAlgorithm, penalties: list[list[float]] | None
) -> list[list[float]]:
    """One advantage for all tokens of an agent in an episode, by comparing it with its group.

    Baselines are per episode and agent: however many trajectories an episode was split into, it
    counts once, and agents are compared with themselves only.
    """
    compare: Callable[[Sequence[float]], list[float]]
    if isinstance(algorithm, RLOO):
        compare = leave_one_out
    else:
        by_std = getattr(algorithm, "normalize_by_std", True)

        def compare(rewards: Sequence[float]) -> list[float]:
            return group_relative(rewards, normalize_by_std=by_std)

    found, number = [], 0
    for group in groups:
        rewards = group.by_agent()
        for offset, (place, _, trajectory) in enumerate(group.rows):
            if penalties is not None:
                rewards[trajectory.agent][place] -= sum(penalties[number + offset])
        number += len(group.rows)
        advantages = {agent: _compared(known, compare) for agent, known in rewards.items()}
        found += [[advantages[t.agent][place]] * len(t.token_ids) for place, _, t in group.rows]
    return found


def _compared(
    rewards: Mapping[int, float], compare: Callable[[Sequence[float]], list[float]]
) -> dict[int, float]:
    """An advantage for each place in the group that has a reward."""
    return dict(zip(rewards, compare(list(rewards.values())), strict=True))


def _over_the_batch(
    groups: Sequence[Group], algorithm: ReinforcePlusPlus, penalties: list[list[float]] | None
) -> list[list[float]]:
    """Rewards to go, normalised over all tokens of the batch."""
    trajectories: list[Trajectory] = []
    to_go: list[list[float]] = []
    for group in groups:
        rewards = group.by_agent()
        if algorithm.group_baseline:
            rewards = {agent: _compared(known, group_centred) for agent, known in rewards.items()}
        for place, _, trajectory in group.rows:
            penalty = None if penalties is None else penalties[len(to_go)]
            reward = rewards[trajectory.agent][place]
            rewarded = token_rewards(reward, trajectory.num_sampled, penalty)
            to_go.append(returns_to_go(rewarded))
            trajectories.append(trajectory)
    pairs = zip(trajectories, normalized(to_go), strict=True)
    return [spread(trajectory, values) for trajectory, values in pairs]


def _by_values(
    groups: Sequence[Group],
    algorithm: PPO,
    columns: Columns,
    penalties: list[list[float]] | None,
) -> tuple[list[list[float]], list[list[float]]]:
    """Advantages by GAE and the value head's targets, each agent's path by itself."""
    trajectories: list[Trajectory] = []
    advantages, returns = [], []
    for group in groups:
        for place, episode, trajectory in group.rows:
            number = len(trajectories)
            penalty = None if penalties is None else penalties[number]
            reward = group.reward(place, trajectory.agent)
            rewards = turn_rewards(episode, trajectory, reward, penalty)
            values = sampled(trajectory, columns["values"][number])
            found, targets = gae(
                rewards, values, discount=algorithm.discount, gae_lambda=algorithm.gae_lambda
            )
            trajectories.append(trajectory)
            advantages.append(found)
            returns.append(targets)
    if algorithm.normalize_advantages:
        advantages = normalized(advantages)
    return (
        [spread(t, values) for t, values in zip(trajectories, advantages, strict=True)],
        [spread(t, values) for t, values in zip(trajectories, returns, strict=True)],
    )


def turn_rewards(
    episode: Episode, trajectory: Trajectory, reward: float, penalties: Sequence[float] | None
) -> list[float]:
    """Reward of each sampled token: at the end of its turn where turns have one, else at the end.

    Turns count where one trajectory holds all of them; what they do not account for of the
    episode's reward comes at the end.
    """
    turns = None if episode.score is None else episode.score.turns
    ends = _turn_ends(trajectory)
    if turns is None or len(episode.trajectories) > 1 or len(turns) != len(ends):
        return token_rewards(reward, trajectory.num_sampled, penalties)
    found = token_rewards(reward - sum(turns), trajectory.num_sampled, penalties)
    for end, value in zip(ends, turns, strict=True):
        found[end] += value
    return found


def _turn_ends(trajectory: Trajectory) -> list[int]:
    """Number, among the tokens that the loss covers, of each turn's last."""
    ends, number = [], -1
    flags = (*trajectory.flags[1:], 0)
    for on, following in zip(trajectory.loss_mask, flags, strict=True):
        if on:
            number += 1
            if not following & SAMPLED:
                ends.append(number)
    return ends
