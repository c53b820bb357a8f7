"""PPO's value head: trained as `torch.optim` would, kept over a resume, apart from the policy."""

import copy

import pytest
import torch

from training_gym.engines.local.credit import Group, credit, training_batch
from training_gym.engines.local.network import Network
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.engines.local.value_head import with_scaled_gradient
from training_gym.spec.algorithms import GRPO, PPO
from training_gym.spec.episodes import PROMPT, SAMPLED, Episode, Score, Trajectory
from training_gym.spec.errors import CheckpointError
from training_gym.spec.recipe import AdamW, Recipe
from training_gym.spec.tasks import Task

SETTINGS = AdamW(learning_rate=1e-2, epsilon=1e-3)


def trainer(network, algorithm, token_budget=48):
    recipe = Recipe(algorithm=algorithm, optimizer=SETTINGS, max_response_tokens=16)
    return LocalTrainer(
        network, recipe, token_budget=token_budget, total_steps=8, save_weights=lambda _: None
    )


def groups(seed):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for prompt_length, *lengths in ((5, 4, 7), (3, 9)):
        prompt = torch.randint(32, 127, (prompt_length,), generator=generator).tolist()
        episodes = []
        for length in lengths:
            ids = prompt + torch.randint(32, 127, (length,), generator=generator).tolist()
            flags = (PROMPT,) * prompt_length + (SAMPLED,) * length
            row = Trajectory(
                token_ids=tuple(ids),
                flags=flags,
                logprobs=tuple(-5.0 if flag & SAMPLED else 0.0 for flag in flags),
                versions=(0,) * len(ids),
                prompt_length=prompt_length,
            )
            reward = torch.randn((), generator=generator).item()
            episodes.append(
                Episode(
                    id="e",
                    task=Task(id="t", prompt="", split_key="t"),
                    group="g",
                    trajectories=(row,),
                    score=Score(value=reward),
                )
            )
        made.append(Group(episodes, [e.score.value for e in episodes]))
    return made


def batch(made, algorithm, seed=0):
    given = groups(seed)
    columns = made.annotate([t for group in given for _, _, t in group.rows])
    rows = credit(given, algorithm, columns)
    return training_batch([row for group in rows for row in group])


def plain_step(model, head, given, algorithm):
    """One PPO update as its paper writes it, row by row in float64."""
    num_tokens = sum(t.num_sampled for t in given.trajectories)
    policy, value = 0.0, 0.0
    rows = zip(
        given.trajectories,
        given.advantages,
        given.columns["values"],
        given.columns["returns"],
        strict=True,
    )
    for row, advantages, old_values, returns in rows:
        ids = torch.tensor([row.token_ids])
        output = model(input_ids=ids, use_cache=False, output_hidden_states=True)
        hidden = output.hidden_states[-1][0, :-1]
        chosen = output.logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
        values = head(
            hidden * algorithm.value_coefficient
            + hidden.detach() * (1 - algorithm.value_coefficient)
        ).squeeze(1)
        for place, on in enumerate(row.loss_mask):
            if not on:
                continue
            ratio = (chosen[place - 1] - row.logprobs[place]).exp()
            bounded = ratio.clamp(0.8, 1.2)
            advantage = advantages[place]
            policy = policy - torch.minimum(ratio * advantage, bounded * advantage)
            new, old = values[place - 1], old_values[place]
            near = old + (new - old).clamp(-0.2, 0.2)
            worst = torch.maximum((new - returns[place]) ** 2, (near - returns[place]) ** 2)
            value = value + worst / 2
    loss = (policy + value) / num_tokens
    loss.backward()
    return loss.item()


def test_two_updates_equal_plain_torch(network):
    algorithm = PPO(gae_lambda=0.9, value_learning_rate=5e-2)
    model = copy.deepcopy(network._causal_lm).double()
    model.set_attn_implementation("eager")
    head = torch.nn.Linear(64, 1).double()
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-3, weight_decay=0, foreach=False),
        torch.optim.AdamW(head.parameters(), lr=5e-2, eps=1e-3, weight_decay=0, foreach=False),
    ]
    ours = trainer(network, algorithm)
    for seed in (0, 1):
        given = batch(ours, algorithm, seed)
        expected = plain_step(model, head, given, algorithm)
        for parameters, optimizer in zip((model, head), optimizers, strict=True):
            torch.nn.utils.clip_grad_norm_(parameters.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        found = ours.step(given)
        assert found["loss"] == pytest.approx(expected, rel=1e-4)
    assert found["value_explained_variance"] != 0.0
    expected = dict(model.named_parameters())
    for name, parameter in network.model.named_parameters():
        assert torch.allclose(parameter.double(), expected[name], atol=2e-5), name
    assert torch.allclose(ours.value_head.linear.weight.double(), head.weight, atol=1e-5)


def test_a_resume_goes_on_with_the_same_head(network, tmp_path):
    algorithm = PPO()
    straight = trainer(network, algorithm)
    straight.step(batch(straight, algorithm, 0))
    straight.save(str(tmp_path))
    resumed = trainer(Network(copy.deepcopy(network.model)), algorithm)
    resumed.load(str(tmp_path))
    found = [made.step(batch(made, algorithm, 1)) for made in (straight, resumed)]
    for metrics in found:
        del metrics["train_seconds"]
    assert found[0] == found[1]
    heads = [made.value_head.linear.weight for made in (straight, resumed)]
    assert heads[0].abs().max() > 0
    assert torch.equal(*heads)


def test_a_checkpoint_without_a_head_is_refused(network, tmp_path):
    trainer(network, GRPO()).save(str(tmp_path))
    with pytest.raises(CheckpointError, match="value_head"):
        trainer(network, PPO()).load(str(tmp_path))


def test_the_head_alone_leaves_the_policy_to_its_own_loss(network):
    algorithm = PPO(value_coefficient=0.0)
    alone = trainer(network, algorithm)
    given = batch(alone, algorithm)
    flat = given.changed(advantages=tuple((0.0,) * len(row) for row in given.advantages))
    before = [p.detach().clone() for _, p in network.trainable()]
    assert alone.step(flat)["value_grad_norm"] > 0
    assert all(torch.equal(p, q) for (_, p), q in zip(network.trainable(), before, strict=True))
    assert alone.value_head.linear.weight.abs().max() > 0


def test_scaling_a_gradient_keeps_the_numbers():
    given = torch.tensor([2.0, 3.0], requires_grad=True)
    scaled = with_scaled_gradient(given, 0.25)
    assert torch.equal(scaled, given)
    scaled.sum().backward()
    assert given.grad.tolist() == [0.25, 0.25]
