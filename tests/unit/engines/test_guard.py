"""Memory is predicted, measured and shared out; what does not fit is made smaller, exactly."""

import asyncio
import copy
import gc

import pytest
import torch

from training_gym.engines.local.credit import Credited, training_batch
from training_gym.engines.local.guard import MemoryGuard
from training_gym.engines.local.meters import ProcessMeter, meter_of
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.trainer import LocalTrainer
from training_gym.planning.phases import Footprint
from training_gym.spec.algorithms import GRPO
from training_gym.spec.episodes import PROMPT, SAMPLED, Trajectory
from training_gym.spec.errors import EngineError
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Prompt, SampleKey, Sampling

MIB = 2**20


class FakeMeter:
    """A machine of `total` bytes, of which the model takes 1000 MiB."""

    def __init__(self, total):
        self.total, self.top = total, 0

    def used(self):
        return 1000 * MIB

    def room(self):
        return self.total - self.used()

    def begin(self):
        self.top = 0

    def peak(self):
        return self.top

    def highest(self):
        return self.top


FOOTPRINT = Footprint(
    gradients=100 * MIB,
    moments=200 * MIB,
    per_packed_token=1 * MIB,
    per_logits_row=0.1 * MIB,
    logits_rows=100,
    head_copy=0.0,
    per_cached_token=0.01 * MIB,
    per_slot=0,
    decoding_weights=100 * MIB,
)
FIXED = 1000 + 100 + 200 + 30 + 128


def guard(total, budget=1024):
    said = []
    made = MemoryGuard(
        FOOTPRINT,
        FakeMeter(total * MIB),
        token_budget=budget,
        say=lambda kind, **fields: said.append((kind, fields)),
    )
    return made, said


def test_what_fits_stays_as_planned():
    made, said = guard(FIXED + 1024)
    assert made.token_budget(100) == 1024
    assert made.sampling_slots(8, 100) == 8
    assert said == []


def test_micro_batches_are_halved_until_they_are_predicted_to_fit():
    made, said = guard(FIXED + 300)
    assert made.token_budget(100) == 256
    assert [fields["token_budget"] for _, fields in said] == [512, 256]
    assert {kind for kind, _ in said} == {"memory_shrunk"}
    assert made.token_budget(100) == 256
    assert len(said) == 2


def test_no_micro_batch_is_smaller_than_the_longest_episode():
    made, _ = guard(FIXED + 400)
    assert made.token_budget(300) == 300


def test_an_episode_that_cannot_fit_is_refused_with_its_numbers():
    made, _ = guard(FIXED + 100)
    with pytest.raises(EngineError, match=r"episode of 900 tokens needs 2\.\d\d GiB") as refused:
        made.token_budget(900)
    assert "max_response_tokens" in refused.value.fix
    # What is within the tolerance of an upper prediction is tried.
    assert made.token_budget(200) == 200


def test_measured_peaks_correct_the_prediction():
    made, _ = guard(FIXED + 700)
    made._meter.top = (FIXED + 512) * MIB  # half a MiB a token, as it turns out
    told = made.training_peak(1024)
    assert told["training_peak_memory_gib"] == pytest.approx((FIXED + 512) / 1024)
    assert told["training_predicted_peak_memory_gib"] == pytest.approx((FIXED + 1024) / 1024)
    assert made.token_budget(100) == 1024  # 1024 tokens, half a MiB and the margin each
    made._meter.top = (FIXED + 2048) * MIB
    made.training_peak(1024)
    assert made.token_budget(100) == 256


def test_fewer_sequences_are_sampled_at_once_where_more_do_not_fit():
    made, said = guard(1300 + 10)  # a slot of 400 tokens takes 4.2 MiB
    assert made.sampling_slots(8, 400) == 2
    assert said == [("memory_shrunk", {"phase": "sampling", "slots": 2, "planned": 8})]
    with pytest.raises(EngineError, match="sampling one sequence of 900000 tokens"):
        made.sampling_slots(8, 900_000)


def test_what_sampling_keeps_stays_where_both_fit_and_goes_before_micro_batches_shrink():
    """Copies of 100 MiB, eight rows of 448 tokens, as many rows of logits."""
    kept = 100 + 8 * 4.48 + 0.8
    given_up = []
    made, said = guard(FIXED + 1024 + int(kept) - 1)
    assert not made.retains(8, 400, lambda: given_up.append("never"))
    assert made.token_budget(100) == 1024
    made, said = guard(FIXED + 1024 + int(kept) + 1)
    assert made.retains(8, 400, lambda: given_up.append("now"))
    assert made.token_budget(100) == 1024
    assert made.training_peak(1024)["training_predicted_peak_memory_gib"] == pytest.approx(
        (FIXED + 1024 + kept) / 1024
    )
    made._meter.top = int((FIXED + 1054 + kept) * MIB)  # it was a little more
    made.training_peak(1024)
    made._meter.total += 100 * MIB  # without what is kept, the margin fits as well
    assert made.token_budget(100) == 1024
    assert given_up == ["now"]
    assert said[0] == (
        "memory_shrunk",
        {"phase": "training", "why": "predicted", "kept_gib": pytest.approx(kept / 1024)},
    )


def test_an_update_that_ran_out_of_memory_gives_up_what_sampling_keeps_first():
    made, said = guard(10**6)
    given_up = []
    assert made.retains(8, 400, lambda: given_up.append("now"))
    assert made.after_failure(100) == 1024
    assert given_up == ["now"]
    assert made.after_failure(100) == 512
    assert [fields["why"] for _, fields in said] == ["failed", "failed"]
    assert given_up == ["now"]


def rows(count=6):
    return [
        Credited(
            Trajectory(
                token_ids=(40, 41, 42, 50 + n, 51, 60, 52),
                flags=(PROMPT,) * 3 + (SAMPLED,) * 4,
                logprobs=(0.0,) * 3 + (-1.5,) * 4,
                versions=(0,) * 7,
                prompt_length=3,
            ),
            1.0,
            [n - 2.5] * 7,
        )
        for n in range(count)
    ]


def trainer(network, budget, said):
    made = LocalTrainer(
        Network(copy.deepcopy(network.model)),
        Recipe(algorithm=GRPO()),
        token_budget=budget,
        total_steps=2,
        save_weights=lambda _: None,
    )
    made.guard = MemoryGuard(
        FOOTPRINT,
        FakeMeter(10**12),
        token_budget=budget,
        say=lambda kind, **fields: said.append(fields),
    )
    return made


@pytest.mark.parametrize("at", [0, 1])
def test_an_update_that_ran_out_of_memory_is_made_again_with_equal_gradients(
    network, monkeypatch, at
):
    """Whichever micro-batch it was: nothing of the failed attempt is left in the gradients."""
    said = []
    failing, small = trainer(network, 24, said), trainer(network, 12, [])
    hidden, calls = failing._network.hidden, []

    def runs_out(ids, positions, layout):
        calls.append(len(ids))
        if len(calls) == at + 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return hidden(ids, positions, layout)

    monkeypatch.setattr(failing._network, "hidden", runs_out)
    batch = training_batch(rows())
    metrics, expected = failing.step(batch), small.step(batch)
    assert len(calls) > at + 1
    assert [(fields["why"], fields["token_budget"]) for fields in said] == [("failed", 12)]
    for name in ("loss", "grad_norm", "train_tokens", "mismatch_mean"):
        assert metrics[name] == expected[name]
    pairs = zip(failing._network.model.parameters(), small._network.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_what_cannot_be_halved_any_more_ends_in_two_lines(network, monkeypatch):
    made = trainer(network, 24, [])

    def runs_out(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(made._network, "hidden", runs_out)
    with pytest.raises(EngineError, match="episode of 7 tokens"):
        made.step(training_batch(rows()))


def test_a_sampler_that_ran_out_of_memory_goes_on_with_fewer_rows(
    network, codec, compute, monkeypatch
):
    def prompt(number):
        return Prompt(token_ids=tuple(range(40, 50 + number)))

    async def sample(fails):
        made = LocalSampler(network, codec, compute, slots=4, max_sequence_tokens=60)
        heard, failures = [], iter([fails])
        made.on_shrunk = heard.append

        def runs_out(ids, *rest):
            if len(ids) == 4 and made.statistics.steps > 3 and next(failures, False):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return Network.next_logits(network, ids, *rest)

        monkeypatch.setattr(network, "next_logits", runs_out)
        sampling = Sampling(max_tokens=12)
        requests = [
            made.generate(prompt(number), sampling, SampleKey(seed=1, task=str(number)))
            for number in range(6)
        ]
        return [one.token_ids for one in await asyncio.gather(*requests)], heard

    undisturbed, quiet = asyncio.run(sample(False))
    found, heard = asyncio.run(sample(True))
    assert found == undisturbed
    assert (quiet, heard) == ([], [2])


def test_a_prompt_that_memory_ran_out_for_is_not_lost(network, codec, compute, monkeypatch):
    async def go():
        made = LocalSampler(network, codec, compute, slots=2, max_sequence_tokens=60)
        failures = iter([True])

        def runs_out(*inputs):
            if next(failures, False):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return Network.hidden(network, *inputs)

        monkeypatch.setattr(network, "hidden", runs_out)
        shared = Prompt(token_ids=tuple(range(40, 60)))
        asked = [
            made.generate(shared, Sampling(max_tokens=3), SampleKey(seed=1, task="t", member=n))
            for n in range(3)
        ]
        return await asyncio.wait_for(asyncio.gather(*asked), 60)

    assert all(len(one.token_ids) > 0 for one in asyncio.run(go()))


def test_the_process_knows_its_peaks():
    meter = meter_of(torch.device("cpu"))
    assert isinstance(meter, ProcessMeter)
    gc.collect()
    meter.begin()
    before = meter.peak()
    assert before >= meter.used() * 0.9
    block = torch.ones(60 * MIB)  # 240 MiB
    del block
    assert meter.peak() - before > 200 * MIB
    meter.begin()
    assert meter.peak() - before < 100 * MIB
    assert meter.highest() - before > 200 * MIB
    assert meter.room() > 0
