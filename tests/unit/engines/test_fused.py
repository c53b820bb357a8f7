"""Layers' parts with derivatives written out, against those written operation by operation."""

import pytest
import torch
from torch.autograd import gradcheck
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from training_gym.engines.local import fused
from training_gym.engines.local.fused import GatedProjection, GatedUnit, RootMeanSquareNorm
from training_gym.engines.local.head import target_logits


def doubles(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_derivatives_against_finite_differences():
    torch.manual_seed(0)
    assert gradcheck(lambda x, w: RootMeanSquareNorm.apply(x, w, 1e-5), (doubles(3, 8), doubles(8)))
    assert gradcheck(RootMeanSquareNorm.apply, (doubles(1, 3, 8), doubles(8).detach(), 1e-5))
    assert gradcheck(GatedUnit.apply, (doubles(3, 8), doubles(3, 8)))
    assert gradcheck(GatedProjection.apply, (doubles(1, 3, 8), doubles(1, 3, 8), doubles(5, 8)))


def gradients(function, *inputs):
    inputs = [given.detach().requires_grad_() for given in inputs]
    result = function(*inputs)
    (result * torch.linspace(-1, 2, result.numel()).view(result.shape)).sum().backward()
    return [result.detach(), *(given.grad for given in inputs)]


def test_the_norm_is_the_models_own():
    torch.manual_seed(0)
    x, weight = torch.randn(1, 30, 64) * 3, torch.randn(64)

    def own(x, weight):
        norm = LlamaRMSNorm(64, eps=1e-5)
        return torch.func.functional_call(norm, {"weight": weight}, (x,))

    found = gradients(lambda x, w: RootMeanSquareNorm.apply(x, w, 1e-5), x, weight)
    for ours, theirs in zip(found, gradients(own, x, weight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_gate_is_the_product_of_its_parts():
    torch.manual_seed(0)
    gate, up = torch.randn(20, 32) * 4, torch.randn(20, 32)
    found = gradients(GatedUnit.apply, gate, up)
    expected = gradients(lambda gate, up: torch.nn.functional.silu(gate) * up, gate, up)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_what_the_projection_does_not_keep_is_computed_again():
    torch.manual_seed(0)
    gate, up, weight = torch.randn(1, 20, 32) * 4, torch.randn(1, 20, 32), torch.randn(16, 32)

    def own(gate, up, weight):
        return torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, weight)

    found = gradients(GatedProjection.apply, gate, up, weight)
    for ours, theirs in zip(found, gradients(own, gate, up, weight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_they_are_installed_in_plain_models_and_can_be_taken_out(network):
    model = network.model
    used = [module for module in model.modules() if "forward" in vars(module)]
    num_layers = len(model.model.layers)
    assert len(used) == 3 * num_layers + 1
    fused.remove(model)
    assert not any("forward" in vars(module) for module in model.modules())


class Head:
    def __init__(self, weight):
        self.weight = weight

    def logits(self, hidden):
        return hidden @ self.weight.T


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_in_the_memory_of_the_logits_are_those_beside_it(temperature):
    torch.manual_seed(0)
    hidden, weight = torch.randn(6, 8), torch.randn(50, 8) * 6
    targets = torch.tensor([0, 49, 3, 3, 7, 20])

    def logprobs(keep):
        def function(hidden, weight):
            found = target_logits(Head(weight), hidden, targets, temperature, keep_logits=keep)
            return found[1]

        return gradients(function, hidden, weight)

    for ours, theirs in zip(logprobs(False), logprobs(True), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
