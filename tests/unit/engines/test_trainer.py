import asyncio
import copy

import pytest
import torch

from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.models.weights import load_model
from training_gym.spec.algorithms import DAPO, GRPO, SFT, DrGRPO
from training_gym.spec.engine import TrainingBatch
from training_gym.spec.episodes import PROMPT, SAMPLED, TOOL, Trajectory
from training_gym.spec.errors import CheckpointError
from training_gym.spec.recipe import AdamW, LocalEngine, Lora, Recipe
from training_gym.spec.sampling import Prompt, SampleKey, Sampling

# A large epsilon keeps Adam from blowing up the rounding of gradients that are nearly zero.
TRAIN = AdamW(learning_rate=1e-2, weight_decay=0.1, epsilon=1e-3)


def recipe(algorithm, **changes):
    return Recipe(
        **{"algorithm": algorithm, "optimizer": TRAIN, "max_response_tokens": 16, **changes}
    )


def trainer(network, made, token_budget=4096):
    return LocalTrainer(
        network, made, token_budget=token_budget, total_steps=10, save_weights=lambda folder: None
    )


def batch(network, seed=0, groups=((7, 5, 3), (4, 9, 1, 6))):
    """Groups given as prompt length and answer lengths; old log-probabilities a little off."""
    generator = torch.Generator().manual_seed(seed)
    made = trainer(network, recipe(GRPO()))
    trajectories, advantages, shares = [], [], []
    for prompt_length, *answers in groups:
        prompt = torch.randint(32, 127, (prompt_length,), generator=generator).tolist()
        for length in answers:
            ids = prompt + torch.randint(32, 127, (length,), generator=generator).tolist()
            flags = [PROMPT] * prompt_length + [SAMPLED] * length
            if length > 5:
                flags[prompt_length + 2] = TOOL
            (logprobs,) = made.score([ids])
            # Off-policy by up to 0.6, so that some ratios are clipped on either side.
            noise = (torch.rand(len(ids), generator=generator) - 0.5) * 1.2
            old = [
                p + n if f & SAMPLED else 0.0
                for p, n, f in zip(logprobs, noise.tolist(), flags, strict=True)
            ]
            trajectories.append(
                Trajectory(
                    token_ids=tuple(ids),
                    flags=tuple(flags),
                    logprobs=tuple(old),
                    versions=(0,) * len(ids),
                    prompt_length=prompt_length,
                )
            )
            value = torch.randn((), generator=generator).item()
            advantages.append((value,) * len(ids))
            shares.append(1.0)
    # The last two rows are one episode that forked.
    shares[-2:] = [0.25, 0.75]
    return TrainingBatch(
        trajectories=tuple(trajectories), advantages=tuple(advantages), weights=tuple(shares)
    )


def plain_loss(model, batch, made):
    """The loss as its papers write it, from the model's own forward, one row at a time, float64."""
    algorithm = made.algorithm
    num_tokens = sum(t.num_sampled for t in batch.trajectories)
    loss = torch.zeros((), dtype=torch.float64)
    rows = zip(batch.trajectories, batch.advantages, batch.weights, strict=True)
    for trajectory, advantages, share in rows:
        ids = torch.tensor([trajectory.token_ids])
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1].double()
        if not isinstance(algorithm, SFT):
            logits = logits / made.sampling.temperature
        logprobs = logits.log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
        mask = torch.tensor(trajectory.loss_mask[1:])
        if isinstance(algorithm, SFT):
            loss = loss - logprobs[mask].sum() / num_tokens
            continue
        advantage = torch.tensor(advantages[1:], dtype=torch.float64)
        ratio = torch.exp(logprobs - torch.tensor(trajectory.logprobs[1:], dtype=torch.float64))
        bounded = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
        gain = torch.minimum(ratio * advantage, bounded * advantage)[mask]
        num_episodes = sum(batch.weights)
        if algorithm.aggregation == "sequence_mean":
            loss = loss - share * gain.mean() / num_episodes
        elif algorithm.aggregation == "token_mean":
            loss = loss - gain.sum() / num_tokens
        else:
            loss = loss - gain.sum() / (num_episodes * made.max_response_tokens)
    return loss


def plain_copy(network):
    """The same weights as an ordinary model of `transformers`, in float64."""
    model = copy.deepcopy(network._causal_lm).double()
    model.set_attn_implementation("eager")
    return model


def plain_steps(model, batches, made):
    """`torch.optim.AdamW` on the plain loss, gradients clipped as a whole."""
    settings = made.optimizer
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        eps=settings.epsilon,
        foreach=False,
    )
    losses = []
    for given in batches:
        loss = plain_loss(model, given, made)
        losses.append(loss.item())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
    return losses


@pytest.mark.parametrize(
    "algorithm",
    [GRPO(), DrGRPO(), DAPO(), SFT(), GRPO(clip_low=0.05, clip_high=0.1, aggregation="constant")],
    ids=["grpo", "dr_grpo", "dapo", "sft", "tight"],
)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_two_steps_equal_plain_torch(network, algorithm, temperature):
    """Packed, chunked float32 against one row at a time in float64."""
    made = recipe(algorithm, sampling=Sampling(temperature=temperature))
    batches = [batch(network, seed) for seed in (0, 1)]
    plain = plain_copy(network)
    losses = plain_steps(plain, batches, made)
    ours = trainer(network, made)
    found = [ours.step(given) for given in batches]
    assert [metrics["loss"] for metrics in found] == pytest.approx(losses, rel=1e-4, abs=1e-5)
    expected = dict(plain.named_parameters())
    for name, parameter in network.model.named_parameters():
        assert torch.allclose(parameter.double(), expected[name], atol=1e-5), name
    assert found[0]["grad_norm"] > 0


def test_a_step_moves_the_weights(network):
    before = [p.detach().clone() for _, p in network.trainable()]
    trainer(network, recipe(GRPO())).step(batch(network))
    moved = [not torch.equal(p, q) for (_, p), q in zip(network.trainable(), before, strict=True)]
    assert all(moved)


@pytest.mark.parametrize(("token_budget", "chunk"), [(8, 512), (20, 16), (4096, 16)])
def test_how_the_batch_is_cut_does_not_matter(network, token_budget, chunk):
    given = batch(network)
    whole, cut = network, Network(copy.deepcopy(network.model))
    ours = trainer(whole, recipe(DAPO(), optimizer=AdamW(learning_rate=1e-3))).step(given)
    engine = LocalEngine(logprob_chunk_tokens=chunk)
    made = recipe(DAPO(), optimizer=AdamW(learning_rate=1e-3), engine=engine)
    other = trainer(cut, made, token_budget).step(given)
    for name in ("loss", "grad_norm", "entropy", "mismatch_max", "clipped_fraction"):
        assert other[name] == pytest.approx(ours[name], abs=2e-5, rel=1e-4), name
    assert other["train_tokens"] >= ours["train_tokens"]
    for (name, p), (_, q) in zip(whole.trainable(), cut.trainable(), strict=True):
        # Adam divides small gradients by their own size; almost all weights must agree closely.
        assert ((p - q).abs() < 1e-5).double().mean() > 0.999, name


def gradients(network, given, algorithm):
    """Of every weight, from the trainer's own pass over a batch."""
    made = trainer(network, recipe(algorithm))
    found = {}

    def keep():
        found.update({n: p.grad.clone() for n, p in network.trainable() if p.grad is not None})
        return {"grad_norm": 0.0, "learning_rate": 0.0, "skipped": 0.0}

    made.optimizer.update = keep
    made.step(given)
    for _, parameter in network.trainable():
        parameter.grad = None
    return found


def split(given, row, at):
    """The batch with one trajectory in two: first tokens alone, the rest trained behind them."""
    whole = given.trajectories[row]
    mask = whole.loss_mask
    first = whole.changed(
        **{
            name: getattr(whole, name)[:at]
            for name in ("token_ids", "flags", "logprobs", "versions")
        }
    )
    rest = whole.changed(trained=tuple(on and place >= at for place, on in enumerate(mask)))
    advantage, share = given.advantages[row], given.weights[row]
    part = first.num_sampled / whole.num_sampled
    return TrainingBatch(
        trajectories=(*given.trajectories[:row], first, rest, *given.trajectories[row + 1 :]),
        advantages=(*given.advantages[:row], advantage[:at], *given.advantages[row:]),
        weights=(
            *given.weights[:row],
            share * part,
            share * (1 - part),
            *given.weights[row + 1 :],
        ),
    )


@pytest.mark.parametrize("algorithm", [GRPO(), DrGRPO(), DAPO()], ids=lambda a: a.kind)
def test_an_episode_in_two_trajectories_has_the_gradients_of_one(network, algorithm):
    given = batch(network)
    whole = gradients(network, given, algorithm)
    parted = gradients(network, split(given, row=3, at=9), algorithm)
    assert any(gradient.abs().max() > 1e-4 for gradient in whole.values())
    for name, gradient in whole.items():
        torch.testing.assert_close(parted[name], gradient, rtol=1e-4, atol=1e-7, msg=name)


def test_measurements_on_numbers_worked_out_by_hand(network):
    given = batch(network)
    before = targets(network, given)
    found = trainer(network, recipe(GRPO())).step(given)
    differences = torch.tensor([new - old for new, old, _ in before])
    ratios = differences.exp()
    advantages = torch.tensor([advantage for _, _, advantage in before])
    lost = ((ratios > 1.2) & (advantages > 0)) | ((ratios < 0.8) & (advantages < 0))
    assert 0 < lost.float().mean() < 1
    assert found["target_tokens"] == len(before)
    assert found["clipped_fraction"] == pytest.approx(lost.float().mean().item())
    assert found["mismatch_max"] == pytest.approx(differences.abs().max().item(), abs=1e-4)
    assert found["ratio_max"] == pytest.approx(ratios.max().item(), abs=1e-3)
    assert found["kl_to_sampler"] == pytest.approx(
        (ratios - 1 - differences).mean().item(), abs=1e-4
    )


def targets(network, given):
    """(log-probability now, the old one, advantage) of every token that the loss covers."""
    made = trainer(network, recipe(GRPO()))
    found = []
    for trajectory, advantages in zip(given.trajectories, given.advantages, strict=True):
        (scores,) = made.score([trajectory.token_ids])
        columns = zip(scores, trajectory.logprobs, advantages, trajectory.loss_mask, strict=True)
        found += [(new, old, advantage) for new, old, advantage, on in columns if on]
    return found


def test_saved_and_loaded_it_goes_on_bit_for_bit(network, tmp_path):
    made = recipe(GRPO(), optimizer=AdamW(learning_rate=1e-3, schedule="cosine", warmup_steps=2))
    batches = [batch(network, seed) for seed in range(4)]
    straight = trainer(network, made)
    for given in batches[:2]:
        straight.step(given)
    straight.save(str(tmp_path))
    resumed = trainer(Network(copy.deepcopy(network.model)), made)
    resumed.load(str(tmp_path))
    for given in batches[2:]:
        ours, other = straight.step(given), resumed.step(given)
        del ours["train_seconds"], other["train_seconds"]
        assert ours == other
    pairs = zip(network.trainable(), resumed._network.trainable(), strict=True)
    assert all(torch.equal(p, q) for (_, p), (_, q) in pairs)


def test_without_the_optimizers_state_it_would_go_on_differently(network):
    made = recipe(GRPO(), optimizer=AdamW(learning_rate=1e-3))
    first, second = batch(network, 0), batch(network, 1)
    straight = trainer(network, made)
    straight.step(first)
    anew = trainer(Network(copy.deepcopy(network.model)), made)
    straight.step(second)
    anew.step(second)
    pairs = zip(network.trainable(), anew._network.trainable(), strict=True)
    assert not all(torch.equal(p, q) for (_, p), (_, q) in pairs)


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint"])
def test_a_damaged_state_is_refused(network, tmp_path, content):
    if content is not None:
        (tmp_path / "trainer.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        trainer(network, recipe(GRPO())).load(str(tmp_path))


def test_a_batch_that_is_not_finite_is_skipped_and_reported(network):
    given = batch(network)
    broken = given.changed(advantages=((float("nan"),) * 12, *given.advantages[1:]))
    before = [p.detach().clone() for _, p in network.trainable()]
    ours = trainer(network, recipe(GRPO()))
    assert ours.step(broken)["skipped"] == 1.0
    assert all(torch.equal(p, q) for (_, p), q in zip(network.trainable(), before, strict=True))
    assert ours.step(given)["skipped"] == 0.0


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_sampler_and_trainer_speak_of_one_distribution(network, codec, compute, temperature):
    sampling = Sampling(temperature=temperature, max_tokens=12)
    sampler = LocalSampler(network, codec, compute, slots=4, max_sequence_tokens=64)
    prompt = tuple(codec.encode("What is 2+2?"))

    async def sample(member):
        key = SampleKey(seed=1, task="t", member=member)
        return await sampler.generate(Prompt(token_ids=prompt), sampling, key)

    async def sample_all():
        return await asyncio.gather(*(sample(member) for member in range(6)))

    completions = asyncio.run(sample_all())
    given = TrainingBatch(
        trajectories=tuple(
            Trajectory(
                token_ids=prompt + c.token_ids,
                flags=(PROMPT,) * len(prompt) + (SAMPLED,) * len(c.token_ids),
                logprobs=(0.0,) * len(prompt) + c.logprobs,
                versions=(0,) * (len(prompt) + len(c.token_ids)),
                prompt_length=len(prompt),
            )
            for c in completions
        ),
        advantages=tuple((1.0,) * (len(prompt) + len(c.token_ids)) for c in completions),
        weights=(1.0,) * 6,
    )
    found = trainer(network, recipe(GRPO(), sampling=sampling, max_response_tokens=12)).step(given)
    assert found["mismatch_max"] < 1e-4
    assert found["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert found["clipped_fraction"] == 0.0


def test_an_adapter_trains_alone(tiny_folder):
    model = load_model(tiny_folder, dtype="float32", device="cpu", adapter=Lora(rank=4, alpha=8))
    network = Network(model)
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    ours = trainer(network, recipe(GRPO(), adapter=Lora(rank=4, alpha=8)))
    given = batch(network)
    ours.step(given)
    ours.step(given)  # B starts at zero: A moves from the second step on
    assert {name.split(".")[-2] for name, _ in network.trainable()} == {"default"}
    assert all("lora_" in name for name, _ in network.trainable())
    for name, parameter in model.named_parameters():
        if name in frozen:
            assert torch.equal(parameter, frozen[name]), name
        else:
            assert parameter.grad is None
