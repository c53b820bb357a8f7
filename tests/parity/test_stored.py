"""Loss and gradients against the numbers that TRL's own trainers gave for the same token batch."""

import pytest
from tests.parity.cases import MIXTURES, PAIRS, POLICY, agree, answers_batch, stored

from training_gym.spec.algorithms import SFT, Distill, FullVocabulary, SimPO


@pytest.mark.parametrize("name", POLICY)
def test_policy_losses_are_what_trl_said(ours_as_in, name):
    agree(ours_as_in(*POLICY[name]), name)


@pytest.mark.parametrize("name", [*PAIRS, "simpo", "sft"])
def test_losses_of_given_answers_are_what_trl_said(ours_on_answers, name):
    rows = stored(name)["rows"]
    algorithm = PAIRS[name][0] if name in PAIRS else {"simpo": SimPO(), "sft": SFT()}[name]
    agree(ours_on_answers(algorithm, lambda trainer: answers_batch(trainer, rows)), name)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_distillation_is_what_trl_said(ours, teacher, mixture):
    algorithm = Distill(teacher="x", loss=FullVocabulary(mixture=mixture))
    agree(ours(algorithm, teacher=teacher), f"distill_{mixture}")
