"""Products over weights that are laid out once, against plain ones."""

import pytest
import torch
import torch.nn.functional as F

from training_gym.engines.local.prepacked import SMALLEST_PACKED, PackedLinear, available
from training_gym.engines.local.projection import Projection, is_projectable

pytestmark = pytest.mark.skipif(
    not available(torch.zeros(1)), reason="this processor's torch cannot pack weights"
)
SIZES = [(24, 16), (SMALLEST_PACKED // 256, 256)]


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_the_projection_and_its_gradients_are_those_of_the_layer(outputs, inputs):
    torch.manual_seed(0)
    layer = torch.nn.Linear(inputs, outputs, bias=False)
    x, weights = torch.randn(5, inputs, requires_grad=True), torch.randn(5, outputs)
    expected = torch.autograd.grad((layer(x) * weights).sum(), (x, layer.weight))
    result = Projection(layer)(x)
    close(result, layer(x))
    for ours, theirs in zip(
        torch.autograd.grad((result * weights).sum(), (x, layer.weight)), expected, strict=True
    ):
        close(ours, theirs)


@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_gradients_of_several_chunks_add_up(outputs, inputs):
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Linear(inputs, outputs, bias=False) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    project = Projection(ours)
    for _ in range(3):
        x = torch.randn(5, inputs)
        project(x).square().sum().backward()
        theirs(x).square().sum().backward()
    assert ours.weight.grad is not None
    close(ours.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_the_projection_sees_that_the_weights_have_changed(outputs, inputs):
    layer, x = torch.nn.Linear(inputs, outputs, bias=False), torch.randn(3, inputs)
    project = Projection(layer)
    before = project(x)
    with torch.no_grad():
        layer.weight.mul_(2)
    close(project(x), 2 * before)
    project.release()
    close(project(x), 2 * before)


def test_only_a_plain_layer_is_projected():
    assert is_projectable(torch.nn.Linear(4, 3, bias=False))
    assert not is_projectable(torch.nn.Linear(4, 3))
    assert not is_projectable(torch.nn.Linear(4, 3, bias=False, dtype=torch.float64))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
@torch.inference_mode()
def test_large_and_small_weights_compute_the_same_products(outputs, inputs, with_bias):
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs) / inputs**0.5
    bias = torch.randn(outputs) if with_bias else None
    x, other = torch.randn(7, inputs), torch.randn(7, outputs)
    packed, plain = PackedLinear(weight, bias), F.linear(x, weight, bias)
    close(packed(x), plain)
    close(packed(x, "swish"), F.silu(plain))
    close(packed.plus(x, other), plain + other)
    close(packed.times(x, other), plain * other)
