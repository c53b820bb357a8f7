import math

import pytest
import torch

from training_gym.algorithms.preferences import dpo_loss, preference_margins, simpo_loss
from training_gym.spec.algorithms import DPO, SimPO


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_margins_compare_both_answers_with_their_reference():
    found = preference_margins(*(torch.tensor([value]) for value in (-3.0, -5.0, -4.0, -4.5)))
    assert found.item() == (-3 + 4) - (-5 + 4.5)


def test_dpo_on_hand_computed_numbers():
    margins = torch.tensor([2.0, -1.0])
    plain = dpo_loss(margins, DPO(beta=0.5)).tolist()
    assert plain == pytest.approx([-math.log(sigmoid(1.0)), -math.log(sigmoid(-0.5))])
    smooth = dpo_loss(margins, DPO(beta=0.5, label_smoothing=0.1)).tolist()
    assert smooth[0] == pytest.approx(-0.9 * math.log(sigmoid(1.0)) - 0.1 * math.log(sigmoid(-1.0)))
    ipo = dpo_loss(margins, DPO(beta=0.5, loss="ipo")).tolist()
    assert ipo == pytest.approx([1.0, 4.0])


def test_simpo_on_hand_computed_numbers():
    found = simpo_loss(torch.tensor([1.5]), SimPO(beta=2.0, margin=1.0))
    assert found.item() == pytest.approx(-math.log(sigmoid(2.0)))


@pytest.mark.parametrize(
    "loss",
    [
        lambda margins: dpo_loss(margins, DPO()),
        lambda margins: dpo_loss(margins, DPO(label_smoothing=0.2)),
        lambda margins: dpo_loss(margins, DPO(loss="ipo")),
        lambda margins: simpo_loss(margins, SimPO()),
    ],
    ids=["dpo", "smooth", "ipo", "simpo"],
)
def test_pairs_by_finite_differences(loss):
    margins = torch.linspace(-3, 3, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (margins,), eps=1e-7, atol=1e-6)
