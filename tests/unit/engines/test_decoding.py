"""Decoding with packed weights against the same step through the model's own modules."""

import pytest
import torch
from tests.unit.engines.families import sharp_model

from training_gym.engines.local.decoding import PLAIN_TYPES
from training_gym.engines.local.network import Network
from training_gym.engines.local.prepacked import PackedLinear
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.models.weights.tiny import FAMILIES, tiny_model
from training_gym.spec.recipe import Lora

HELD = (40, 7, 33)
"""Tokens that three rows hold: beyond and within the sliding windows of 32."""


@pytest.fixture(scope="module", params=PLAIN_TYPES)
def folder(request, tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("plain") / request.param, request.param)


def two_steps(network, next_logits):
    """Logits of two steps over rows of different lengths."""
    cache = network.cache(len(HELD))
    cache.reserve(64)
    spans = [range(length) for length in HELD]
    positions = torch.tensor([place for span in spans for place in span])
    rows = tuple(range(len(HELD)))
    network.hidden(positions % 90 + 32, positions, SlotLayout(cache, rows, HELD, (0, 0, 0)))
    found = []
    for step in range(2):
        starts = tuple(length + step for length in HELD)
        layout = SlotLayout(cache, rows, (1, 1, 1), starts)
        found.append(next_logits(torch.tensor([50, 60, 70]), torch.tensor(starts), layout))
    return torch.cat(found).log_softmax(-1)


@torch.no_grad()
def difference(network):
    assert network.decoding.name == "packed weights"
    by_modules = two_steps(network, lambda *inputs: network.logits(network.hidden(*inputs)))
    return (two_steps(network, network.next_logits) - by_modules).abs().max()


def test_a_step_is_what_the_modules_compute(folder):
    assert difference(Network(sharp_model(folder))) < 1e-5


def test_weights_that_were_changed_in_place_are_packed_anew(folder):
    network = Network(sharp_model(folder))
    before = two_steps(network, network.next_logits)
    with torch.no_grad():
        network.model.get_input_embeddings().weight.mul_(1.1)
        network.trainable()[3][1].mul_(1.1)
    assert difference(network) < 1e-5
    assert (two_steps(network, network.next_logits) - before).abs().max() > 1e-3


def test_an_adapter_is_part_of_the_packed_weights_and_can_be_switched_off(folder):
    network = Network(sharp_model(folder, adapter=Lora(rank=4)))
    base = two_steps(network, network.next_logits)
    with torch.no_grad():
        for name, parameter in network.trainable():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    assert difference(network) < 1e-5
    assert (two_steps(network, network.next_logits) - base).abs().max() > 1e-3
    with network.model.disable_adapter():
        assert (two_steps(network, network.next_logits) - base).abs().max() < 1e-5


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(PLAIN_TYPES)))
def test_other_families_keep_to_their_modules(family, tmp_path):
    network = Network(sharp_model(tiny_model(tmp_path, family)))
    assert network.decoding.by_modules


def test_a_packed_product_takes_activation_sum_and_factor_along():
    torch.manual_seed(0)
    x, weight, bias, other = (torch.randn(*n) for n in ((5, 24), (40, 24), (40,), (5, 40)))
    plain = torch.nn.functional.linear(x, weight, bias)
    packed = PackedLinear(weight, bias)
    with torch.no_grad():
        torch.testing.assert_close(packed(x), plain)
        torch.testing.assert_close(packed(x, "swish"), torch.nn.functional.silu(plain))
        torch.testing.assert_close(packed.plus(x, other), plain + other)
        torch.testing.assert_close(packed.times(x, other), plain * other)
