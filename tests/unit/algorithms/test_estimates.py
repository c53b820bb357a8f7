"""KL, entropy and divergences against sums over a small vocabulary, done by hand."""

import math

import pytest
import torch

from training_gym.algorithms.divergences import (
    entropies,
    generalized_jensen_shannon,
    kl_estimates,
    kl_loss,
)

DOUBLE = torch.float64


@pytest.fixture
def policies():
    """Logits of a policy, of the one that sampled, and of a reference, over five tokens."""
    torch.manual_seed(3)
    return [torch.randn(5, dtype=DOUBLE) for _ in range(3)]


def exact_kl(first, second):
    return (first.exp() * (first - second)).sum()


def test_estimators_on_hand_computed_numbers():
    # p = 0.5, reference 0.25: log r = -log 2.
    logp, reference = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    found = {name: kl_estimates(logp, reference, name).item() for name in ("k1", "k2", "k3")}
    assert found["k1"] == pytest.approx(math.log(2))
    assert found["k2"] == pytest.approx(math.log(2) ** 2 / 2)
    assert found["k3"] == pytest.approx(0.5 - 1 + math.log(2))


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_two_estimators_have_the_kl_as_their_mean(policies, estimator):
    policy, _, reference = (logits.log_softmax(0) for logits in policies)
    mean = (policy.exp() * kl_estimates(policy, reference, estimator)).sum()
    assert mean.item() == pytest.approx(exact_kl(policy, reference).item(), rel=1e-12)


def expected_gradient(policies, estimator, exact, off_policy):
    """Mean gradient of the loss over every token that could have been sampled."""
    logits, sampler, reference = policies
    logits = logits.clone().requires_grad_()
    policy = logits.log_softmax(0)
    old = sampler.log_softmax(0) if off_policy else policy.detach()
    loss = kl_loss(
        policy,
        reference.log_softmax(0),
        old,
        old.exp(),
        estimator=estimator,
        exact_gradient=exact,
    )
    (gradient,) = torch.autograd.grad(loss, logits)
    return gradient


def gradient_of_kl(policies, *, reverse):
    logits, _, reference = policies
    logits = logits.clone().requires_grad_()
    policy, held = logits.log_softmax(0), reference.log_softmax(0)
    loss = exact_kl(policy, held) if reverse else exact_kl(held, policy)
    (gradient,) = torch.autograd.grad(loss, logits)
    return gradient


@pytest.mark.parametrize("off_policy", [False, True])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_exact_gradients_are_those_of_the_reverse_kl(policies, estimator, off_policy):
    found = expected_gradient(policies, estimator, True, off_policy)
    assert torch.allclose(found, gradient_of_kl(policies, reverse=True), atol=1e-12)


def test_plain_gradients_are_what_the_docstring_says(policies):
    reverse, forward = (gradient_of_kl(policies, reverse=way) for way in (True, False))
    k1, k2, k3 = (
        expected_gradient(policies, name, False, off_policy=False) for name in ("k1", "k2", "k3")
    )
    assert torch.allclose(k1, torch.zeros(5, dtype=DOUBLE), atol=1e-12)
    assert torch.allclose(k2, reverse, atol=1e-12)
    assert torch.allclose(k3, forward, atol=1e-12)
    assert not torch.allclose(k3, reverse, atol=1e-3)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_loss_by_finite_differences(estimator, exact):
    if exact and estimator == "k2":
        return  # its ratio is held constant: not the gradient of its own value
    torch.manual_seed(0)
    logprobs = (torch.randn(8, dtype=DOUBLE) - 2).requires_grad_()
    reference, old = (torch.randn(8, dtype=DOUBLE) - 2 for _ in range(2))
    weights = torch.rand(8, dtype=DOUBLE)

    def loss(values):
        return kl_loss(values, reference, old, weights, estimator=estimator, exact_gradient=exact)

    assert torch.autograd.gradcheck(loss, (logprobs,), eps=1e-7, atol=1e-6)


def test_entropy_of_known_distributions():
    logits = torch.tensor([[0.0] * 8, [0.0, math.log(3)] + [-1e9] * 6])
    expected = [math.log(8), math.log(4) - 0.75 * math.log(3)]
    assert entropies(logits).tolist() == pytest.approx(expected)


def test_entropy_by_finite_differences():
    torch.manual_seed(0)
    logits = torch.randn(3, 6, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(entropies, (logits,), eps=1e-7, atol=1e-6)


def jensen_shannon(student, teacher, beta):
    """The definition, probability by probability."""
    q, p = student.softmax(0).tolist(), teacher.softmax(0).tolist()
    if beta == 0:
        return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    if beta == 1:
        return sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    m = [beta * a + (1 - beta) * b for a, b in zip(p, q, strict=True)]
    first = sum(a * math.log(a / c) for a, c in zip(p, m, strict=True))
    second = sum(b * math.log(b / c) for b, c in zip(q, m, strict=True))
    return beta * first + (1 - beta) * second


@pytest.mark.parametrize("mixture", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_divergence_against_its_definition(mixture):
    torch.manual_seed(1)
    student, teacher = (torch.randn(4, 7, dtype=DOUBLE) for _ in range(2))
    found = generalized_jensen_shannon(student, teacher, mixture)
    expected = [jensen_shannon(s, t, mixture) for s, t in zip(student, teacher, strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-10)
    assert generalized_jensen_shannon(student, student, mixture).abs().max() < 1e-12


@pytest.mark.parametrize("mixture", [0.0, 0.3, 1.0])
def test_divergence_by_finite_differences(mixture):
    torch.manual_seed(1)
    student = torch.randn(2, 5, dtype=DOUBLE, requires_grad=True)
    teacher = torch.randn(2, 5, dtype=DOUBLE)

    def divergence(logits):
        return generalized_jensen_shannon(logits, teacher, mixture)

    assert torch.autograd.gradcheck(divergence, (student,), eps=1e-7, atol=1e-6)


def test_padding_of_one_vocabulary_is_left_out():
    torch.manual_seed(1)
    student, teacher = torch.randn(2, 5), torch.randn(2, 5)
    padded = torch.cat([teacher, torch.full((2, 3), -30.0)], dim=1)
    expected = generalized_jensen_shannon(student, teacher, 0.5)
    assert torch.allclose(generalized_jensen_shannon(student, padded, 0.5), expected)
