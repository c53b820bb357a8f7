"""What each token of a batch is credited with, on numbers worked out by hand."""

import math

import pytest

from training_gym.engines.local.credit import Group, credit, training_batch, turn_rewards
from training_gym.engines.local.rollout import Rollout, rollout_metrics
from training_gym.spec.algorithms import GRPO, PPO, RLOO, ReinforcePlusPlus
from training_gym.spec.episodes import PROMPT, SAMPLED, Episode, Fidelity, Score, Trajectory
from training_gym.spec.loss_terms import RewardKL
from training_gym.spec.tasks import Task


def path(flags, logprob=-1.0):
    return Trajectory(
        token_ids=tuple(range(len(flags))),
        flags=tuple(flags),
        logprobs=tuple(logprob if flag & SAMPLED else 0.0 for flag in flags),
        versions=(0,) * len(flags),
        prompt_length=1,
    )


def answer(length):
    return path((PROMPT,) + (SAMPLED,) * length)


def episode(*paths, score=0.0, turns=None):
    return Episode(
        id="e",
        task=Task(id="t", prompt="", split_key="t"),
        group="g",
        trajectories=paths,
        score=Score(value=score, turns=turns),
    )


def group(*pairs):
    """Episodes of one path each, as (length, reward)."""
    return Group([episode(answer(n), score=r) for n, r in pairs], [r for _, r in pairs])


def constant(groups, value):
    return [[value] * len(t.token_ids) for g in groups for _, _, t in g.rows]


def advantages(credited):
    return [[list(row.advantages) for row in group] for group in credited]


def test_rloo_compares_with_the_others():
    found = advantages(credit([group((1, 1.0), (2, 2.0), (1, 3.0))], RLOO(), {}))
    assert [row[-1] for row in found[0]] == pytest.approx([-1.5, 0.0, 1.5])


def test_a_kl_in_the_reward_counts_over_the_episode():
    groups = [group((1, 1.0), (3, 1.0))]
    columns = {"reference_logprobs": constant(groups, -1.5)}
    # k1 is 0.5 a token: penalties 0.05 and 0.15, so the shorter answer is 0.1 better.
    algorithm = GRPO(kl=RewardKL(coefficient=0.1), normalize_by_std=False)
    found = advantages(credit(groups, algorithm, columns))
    assert [row[-1] for row in found[0]] == pytest.approx([0.05, -0.05])


def test_reinforce_plus_plus_normalises_over_all_tokens():
    groups = [group((1, 1.0)), group((3, -1.0))]
    found = advantages(credit(groups, ReinforcePlusPlus(), {}))
    # Four tokens: 1, -1, -1, -1, of mean -0.5 and standard deviation √0.75; prompts get nothing.
    high, low = 1.5 / math.sqrt(0.75), -0.5 / math.sqrt(0.75)
    assert found[0][0] == pytest.approx([0.0, high])
    assert found[1][0] == pytest.approx([0.0, low, low, low])


def test_its_penalties_count_from_each_token_on():
    groups = [group((2, 1.0)), group((2, 0.0))]
    columns = {"reference_logprobs": constant(groups, -2.0)}
    algorithm = ReinforcePlusPlus(kl=RewardKL(coefficient=0.25))
    found = advantages(credit(groups, algorithm, columns))
    # k1 is 1 a token: returns 0.5, 0.75 and -0.5, -0.25; mean 0.125.
    std = math.sqrt((0.375**2 + 0.625**2 + 0.625**2 + 0.375**2) / 4)
    assert found[0][0] == pytest.approx([0.0, 0.375 / std, 0.625 / std])
    assert found[1][0] == pytest.approx([0.0, -0.625 / std, -0.375 / std])


def test_its_baseline_takes_the_groups_mean_first():
    groups = [group((1, 5.0), (1, 7.0)), group((1, 0.0), (1, 2.0))]
    found = advantages(credit(groups, ReinforcePlusPlus(group_baseline=True), {}))
    last = [row[-1] for rows in found for row in rows]
    assert last == pytest.approx([-1.0, 1.0, -1.0, 1.0])


def test_ppo_credits_by_values_and_sets_their_targets():
    groups = [group((2, 3.0))]
    columns = {"values": [[9.0, 1.0, 2.0]]}
    algorithm = PPO(discount=0.5, gae_lambda=0.5, normalize_advantages=False)
    ((row,),) = credit(groups, algorithm, columns)
    # δ = 0.5·2 - 1 = 0 and 3 - 2 = 1; γλ = 0.25.
    assert row.advantages == pytest.approx([0.0, 0.25, 1.0])
    assert row.columns["returns"] == pytest.approx([0.0, 1.25, 3.0])
    batch = training_batch([row])
    assert batch.columns["values"] == ((9.0, 1.0, 2.0),)
    assert set(batch.columns) == {"values", "returns"}


TURNS = (PROMPT, SAMPLED, SAMPLED, PROMPT, SAMPLED)


def test_rewards_of_turns_come_at_their_ends():
    one = path(TURNS)
    given = episode(one, score=1.0, turns=(0.25, 0.5))
    assert turn_rewards(given, one, 1.0, None) == [0.0, 0.25, 0.75]
    assert turn_rewards(given, one, 1.0, [0.1, 0.1, 0.1]) == pytest.approx([-0.1, 0.15, 0.65])
    other = episode(one, score=1.0, turns=(0.25, 0.25, 0.5))
    assert turn_rewards(other, one, 1.0, None) == [0.0, 0.0, 1.0]


def test_each_path_of_a_forked_episode_ends_with_its_reward():
    forked = Group([episode(answer(1), answer(3), score=2.0)], [2.0])
    columns = {"values": [[0.0] * 2, [0.0] * 4]}
    (rows,) = credit([forked], PPO(normalize_advantages=False), columns)
    assert [row.share for row in rows] == [0.25, 0.75]
    assert [list(row.advantages) for row in rows] == [[0.0, 2.0], [0.0, 2.0, 2.0, 2.0]]


def test_the_drift_rate_is_of_the_prompts_that_could_have_drifted():
    def prompt(kind, *, has_history=True):
        return Fidelity(agent="a", kind=kind, prompt_tokens=1, has_history=has_history)

    first = prompt("opened", has_history=False)
    straight = episode(path(TURNS)).changed(fidelity=(first, prompt("grown"), prompt("branched")))
    forked = episode(answer(1), answer(1)).changed(fidelity=(first, prompt("forked")))

    def rate(*episodes):
        return rollout_metrics(Rollout(episodes=list(episodes)))["drift_rate"]

    assert rate(straight) == 0.0
    assert rate(straight, forked) == pytest.approx(1 / 3)
    assert rate() == 0.0


def two_agents(white, black, *, value=0.0, paths=1):
    """An episode of two agents; white's tokens lie on one path or on several."""
    whites = [answer(4)] if paths == 1 else [answer(1), answer(3)]
    episode_ = episode(*whites, answer(2).changed(agent="black"), score=value)
    agents = {"policy": white, "black": black}
    return episode_.changed(score=Score(value=value, agents=agents))


@pytest.mark.parametrize("algorithm", [GRPO(normalize_by_std=False), RLOO()])
def test_every_agent_is_compared_with_itself(algorithm):
    episodes = [two_agents(1.0, 0.0), two_agents(0.0, 4.0)]
    found = advantages(credit([Group(episodes, [0.0, 0.0])], algorithm, {}))[0]
    scale = 1.0 if isinstance(algorithm, GRPO) else 2.0
    assert [row[-1] for row in found] == pytest.approx(
        [0.5 * scale, -2 * scale, -0.5 * scale, 2 * scale]
    )


def test_a_group_in_which_only_one_agent_differs_still_teaches():
    assert Group([two_agents(1.0, 0.0), two_agents(1.0, 4.0)], [0.0, 0.0]).informative
    assert not Group([two_agents(1.0, 4.0), two_agents(1.0, 4.0)], [0.0, 0.0]).informative


def test_an_agent_that_was_not_in_every_episode_is_compared_with_those_it_was_in():
    alone = episode(answer(2), score=9.0)
    group_ = Group([two_agents(1.0, 0.0), alone, two_agents(3.0, 2.0)], [0.0, 9.0, 0.0])
    found = advantages(credit([group_], GRPO(normalize_by_std=False), {}))[0]
    mean = (1.0 + 9.0 + 3.0) / 3
    assert [row[-1] for row in found] == pytest.approx([1 - mean, -1.0, 9 - mean, 3 - mean, 1.0])


def test_what_shaping_took_from_the_episode_its_agents_lose_too():
    shaped = Group([two_agents(1.0, 0.0, value=1.0), two_agents(1.0, 0.0, value=1.0)], [0.5, 1.0])
    assert shaped.by_agent() == {"policy": {0: 0.5, 1: 1.0}, "black": {0: -0.5, 1: 0.0}}


@pytest.mark.parametrize(
    "algorithm", [GRPO(), RLOO(), ReinforcePlusPlus(group_baseline=True)], ids=lambda a: a.kind
)
def test_splitting_an_episode_changes_neither_its_weight_nor_any_advantage(algorithm):
    def credited(paths):
        episodes = [two_agents(1.0, 0.0, paths=paths), two_agents(0.0, 4.0), two_agents(3.0, 1.0)]
        return credit([Group(episodes, [0.0] * 3)], algorithm, {})[0]

    whole, split = credited(1), credited(2)
    assert sum(row.share for row in whole) == pytest.approx(3)
    assert sum(row.share for row in split) == pytest.approx(3)
    assert split[0].share + split[1].share == pytest.approx(whole[0].share)
    assert split[0].advantages[-1] == pytest.approx(whole[0].advantages[-1])
    assert split[1].advantages[-1] == pytest.approx(whole[0].advantages[-1])
    for one, other in zip(whole[1:], split[2:], strict=True):
        assert one.advantages == pytest.approx(other.advantages)
