import math

import pytest
import torch

from training_gym.algorithms.corrections import correction_weights
from training_gym.algorithms.ratios import log_ratios, row_means, row_sums, row_totals
from training_gym.spec.loss_terms import MIS, TIS, IcePop

ROWS = torch.tensor([7, 7, 2, 7])
LOGPROBS = torch.tensor([-1.0, -2.0, -3.0, -4.0])
OLD = torch.tensor([-1.5, -2.0, -2.0, -3.0])


def test_rows_are_summed_wherever_they_lie():
    assert row_totals(LOGPROBS, ROWS).tolist() == [-3.0, -7.0]
    assert row_sums(LOGPROBS, ROWS).tolist() == [-7.0, -7.0, -3.0, -7.0]
    assert row_means(LOGPROBS, ROWS).tolist() == pytest.approx([-7 / 3, -7 / 3, -3.0, -7 / 3])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [0.5, 0.0, -1.0, -1.0]),
        ("sequence_mean", [-1 / 6, -1 / 6, -1.0, -1 / 6]),
        ("sequence_product", [-0.5, -0.5, -1.0, -0.5]),
    ],
)
def test_log_ratios_of_tokens_and_of_trajectories(level, expected):
    assert log_ratios(LOGPROBS, OLD, ROWS, level).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("level", ["token", "sequence_mean", "sequence_product"])
def test_log_ratios_by_finite_differences(level):
    logprobs = LOGPROBS.double().requires_grad_()

    def ratios(values):
        return log_ratios(values, OLD.double(), ROWS, level).exp()

    assert torch.autograd.gradcheck(ratios, (logprobs,), eps=1e-7, atol=1e-6)


# Trainer over sampler: 4, 1 and 0.25 in row 0, so 1 as a whole; 3 in row 1.
TRAINER = torch.log(torch.tensor([0.8, 0.5, 0.1, 0.6])).requires_grad_()
SAMPLER = torch.log(torch.tensor([0.2, 0.5, 0.4, 0.2]))
OF_TWO = torch.tensor([0, 0, 0, 1])


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        (TIS(), [2.0, 1.0, 0.25, 2.0]),
        (TIS(level="sequence", cap=2.5), [1.0, 1.0, 1.0, 2.5]),
        (MIS(level="token"), [0.0, 1.0, 0.25, 0.0]),
        (MIS(), [1.0, 1.0, 1.0, 0.0]),
        (MIS(cap=4), [1.0, 1.0, 1.0, 3.0]),
        (IcePop(), [4.0, 1.0, 0.0, 3.0]),
        (IcePop(cap=3.5), [0.0, 1.0, 0.0, 3.0]),
    ],
    ids=["tis", "tis_sequence", "mis_token", "mis", "mis_wide", "icepop", "icepop_tight"],
)
def test_corrections_on_hand_computed_numbers(correction, expected):
    found = correction_weights(TRAINER, SAMPLER, OF_TWO, correction)
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    assert not found.requires_grad


def test_without_mismatch_every_correction_is_one():
    for correction in (TIS(), TIS(level="sequence"), MIS(), MIS(level="token"), IcePop()):
        found = correction_weights(SAMPLER, SAMPLER, OF_TWO, correction)
        assert found.tolist() == [1.0] * 4


def test_truncation_keeps_the_mean_of_what_it_does_not_cut():
    """Importance weights move means from the sampler to the trainer, as long as none is cut."""
    torch.manual_seed(0)
    trainer, sampler = (torch.randn(6, dtype=torch.float64).log_softmax(0) for _ in range(2))
    value = torch.randn(6, dtype=torch.float64)
    weights = correction_weights(trainer, sampler, torch.arange(6), TIS(cap=1e9))
    assert (sampler.exp() * weights * value).sum().item() == pytest.approx(
        (trainer.exp() * value).sum().item(), rel=1e-12
    )
    assert math.isclose((sampler.exp() * weights).sum().item(), 1.0)
