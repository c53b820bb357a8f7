"""Loss and gradients against TRL's own trainers on one token batch.

Needs TRL: `make test-parity` runs these in an environment of their own. With STORE_PARITY=1 its
numbers are kept, which the default suite compares with.
"""

from types import SimpleNamespace

import pytest
import torch
from tests.parity.cases import (
    MAX_TOKENS,
    MIXTURES,
    PAIRS,
    POLICY,
    TEMPERATURE,
    answers_batch,
    equal,
    keep,
)

from training_gym.spec.algorithms import GRPO, SFT, Distill, FullVocabulary, SimPO

TRL = pytest.mark.filterwarnings("default")
COMMON = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
    "per_device_train_batch_size": 8,
}


@pytest.fixture
def trl():
    return pytest.importorskip("trl", reason="make test-parity brings TRL")


@pytest.fixture
def plain_model(model_folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="eager"
    )


@pytest.fixture
def tokenizer(model_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder)


@pytest.fixture
def trl_policy(trl, plain_model, teacher, tokenizer, tokens, policy, rows_of_tokens, tmp_path):
    """A GRPO or RLOO trainer of TRL whose sampler returns our tokens; its own loss inputs."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    def go(settings):
        settings = {"loss_type": "grpo", **settings}
        sampler = settings.pop("use_vllm", False)
        rloo = settings.pop("rloo", False)
        reference = settings.pop("reference", False)
        if rloo:
            del settings["loss_type"]
        config, trainer = (
            (trl.RLOOConfig, trl.RLOOTrainer) if rloo else (trl.GRPOConfig, trl.GRPOTrainer)
        )
        rewards = [reward for group in tokens.rewards for reward in group]
        made = trainer(
            model=plain_model,
            reward_funcs=lambda completions, **_: rewards,
            args=config(
                output_dir=str(tmp_path),
                num_generations=4,
                max_completion_length=MAX_TOKENS,
                temperature=TEMPERATURE,
                num_iterations=2,
                **COMMON,
                **settings,
            ),
            train_dataset=Dataset.from_list([{"prompt": "a"}, {"prompt": "b"}]),
            processing_class=tokenizer,
        )
        if reference:
            other = AutoModelForCausalLM.from_pretrained(teacher, dtype=torch.float32)
            made.ref_model.load_state_dict(other.state_dict())
        made.use_vllm = sampler
        made.current_gradient_accumulation_steps = 1
        prompts = [list(row.token_ids[: row.prompt_length]) for row in rows_of_tokens]
        answers = [list(row.token_ids[row.prompt_length :]) for row in rows_of_tokens]
        texts = [tokenizer.decode(answer) for answer in answers]
        noise = [off for group in tokens.noise for off in group]
        scored = policy(GRPO()).logprobs(rows_of_tokens)
        logprobs = [
            [p + n for p, n in zip(row[len(prompt) :], off, strict=True)]
            for row, prompt, off in zip(scored, prompts, noise, strict=True)
        ]
        sampled = logprobs if sampler else None
        returned = (prompts, answers, texts) if rloo else (
            prompts, answers, None, texts, sampled, {}, None, None
        )  # fmt: skip
        made._generate = lambda _: returned
        made.model.train()
        inputs = made._generate_and_score_completions([{"prompt": text} for text in "aaaabbbb"])
        return made, inputs

    return go


@TRL
@pytest.mark.slow
@pytest.mark.parametrize("name", POLICY)
def test_policy_losses_equal_trl(ours_as_in, trl_policy, differentiated, move, name):
    algorithm, settings = POLICY[name]
    trainer, inputs = trl_policy(settings)
    move(trainer.model)
    expected = differentiated(trainer._compute_loss(trainer.model, inputs), trainer.model)
    keep(name, expected)
    equal(ours_as_in(algorithm, settings), expected)


def rows_in(batch):
    """Ids and learned tokens of each row of a padded batch."""
    mask = batch["completion_mask"] if "completion_mask" in batch else batch["labels"] != -100
    rows = zip(batch["input_ids"].tolist(), mask.tolist(), batch["attention_mask"], strict=True)
    return [
        ([i for i, on in zip(ids, kept, strict=True) if on],
         [int(m) for m, on in zip(learned, kept, strict=True) if on])
        for ids, learned, kept in rows
    ]  # fmt: skip


EXAMPLES = [
    {"prompt": "2+2=", "chosen": "4, I think", "rejected": "5"},
    {"prompt": "A rhyme on cat: ", "chosen": "hat", "rejected": "no such rhyme"},
    {"prompt": "Hi", "chosen": " there, friend", "rejected": "!!"},
]


@TRL
@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_preference_losses_equal_trl(
    ours_on_answers, trl, plain_model, tokenizer, differentiated, move, tmp_path, name
):
    from datasets import Dataset

    algorithm, settings = PAIRS[name]
    trainer = trl.DPOTrainer(
        model=plain_model,
        args=trl.DPOConfig(output_dir=str(tmp_path), beta=algorithm.beta, **COMMON, **settings),
        train_dataset=Dataset.from_list(EXAMPLES),
        processing_class=tokenizer,
    )
    batch = next(iter(trainer.get_train_dataloader()))
    rows = rows_in(batch)
    half = len(rows) // 2  # all chosen ones, then all rejected ones
    pairs = [row for pair in zip(rows[:half], rows[half:], strict=True) for row in pair]
    move(trainer.model)
    trainer.model.train()
    expected = differentiated(trainer.compute_loss(trainer.model, batch), trainer.model)
    keep(name, expected, rows=pairs)
    equal(ours_on_answers(algorithm, lambda made: answers_batch(made, pairs)), expected)


@TRL
@pytest.mark.slow
def test_simpo_equals_trl(ours_on_answers, trl, plain_model, tokenizer, differentiated, move):
    from trl.experimental.cpo import CPOTrainer

    pairs = []
    for example in EXAMPLES:
        prompt = tokenizer.encode(example["prompt"])
        for name in ("chosen", "rejected"):
            answer = [*tokenizer.encode(example[name]), tokenizer.eos_token_id]
            pairs.append(([*prompt, *answer], [0] * len(prompt) + [1] * len(answer)))
    move(plain_model)
    means = []
    for ids, mask in pairs:
        tokens = torch.tensor([ids])
        scores = plain_model(input_ids=tokens).logits[0, :-1].log_softmax(-1)
        chosen = scores.gather(1, tokens[0, 1:, None]).squeeze(1)
        means.append(chosen[torch.tensor(mask[1:]) == 1].mean())
    side = SimpleNamespace(
        alpha=0.0, beta=2.0, simpo_gamma=1.0, label_smoothing=0.0, loss_type="simpo",
        accelerator=SimpleNamespace(device="cpu"),
    )  # fmt: skip
    losses, _, _ = CPOTrainer.cpo_loss(side, torch.stack(means[::2]), torch.stack(means[1::2]))
    expected = differentiated(losses.mean(), plain_model)
    keep("simpo", expected, rows=pairs)
    equal(ours_on_answers(SimPO(), lambda made: answers_batch(made, pairs)), expected)


@TRL
@pytest.mark.slow
def test_imitation_equals_trl(
    ours_on_answers, trl, plain_model, tokenizer, differentiated, move, tmp_path
):
    from datasets import Dataset

    given = [{"prompt": e["prompt"], "completion": e["chosen"]} for e in EXAMPLES]
    trainer = trl.SFTTrainer(
        model=plain_model,
        args=trl.SFTConfig(output_dir=str(tmp_path), **COMMON),
        train_dataset=Dataset.from_list(given),
        processing_class=tokenizer,
    )
    batch = next(iter(trainer.get_train_dataloader()))
    rows = rows_in(batch)
    move(trainer.model)
    trainer.model.train()
    expected = differentiated(trainer.compute_loss(trainer.model, batch), trainer.model)
    keep("sft", expected, rows=rows)
    equal(ours_on_answers(SFT(), lambda made: answers_batch(made, rows)), expected)


@TRL
@pytest.mark.slow
@pytest.mark.parametrize("mixture", MIXTURES)
def test_distillation_equals_trl(
    ours, trl, plain_model, rows_of_tokens, teacher, differentiated, move, mixture
):
    from transformers import AutoModelForCausalLM
    from trl.experimental.gkd import GKDTrainer

    taught = AutoModelForCausalLM.from_pretrained(teacher, dtype=torch.float32)
    move(plain_model)
    pairs = []
    for row in rows_of_tokens:
        ids, start = torch.tensor([row.token_ids]), row.prompt_length - 1
        pairs.append([m(input_ids=ids).logits[0, start:-1] for m in (plain_model, taught)])
    student, theirs = (torch.cat([pair[side] for pair in pairs])[None] for side in (0, 1))
    loss = GKDTrainer.generalized_jsd_loss(
        student,
        theirs.detach(),
        labels=torch.zeros(student.shape[:2], dtype=torch.long),
        beta=mixture,
        temperature=TEMPERATURE,
    )
    expected = differentiated(loss, plain_model)
    keep(f"distill_{mixture}", expected)
    algorithm = Distill(teacher="x", loss=FullVocabulary(mixture=mixture))
    equal(ours(algorithm, teacher=teacher), expected)
