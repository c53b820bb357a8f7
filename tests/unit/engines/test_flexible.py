"""Packed attention by one kernel: the mask, what pads, gradients, and when it is not taken."""

import functools

import pytest
import torch
from tests.unit.engines.families import sharp_model
from tests.unit.engines.test_families import (
    test_gradients_of_a_packed_step_are_those_of_single_sequences as check_gradients,
)
from torch.nn.attention.flex_attention import AuxOutput

from training_gym.engines.local import parity
from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.flexible import (
    FlexibleAttention,
    block_mask,
    compiled,
    kernels_for,
    mask_function,
    padded_length,
    tokens_of,
)
from training_gym.engines.local.kernels import LayerOptions
from training_gym.engines.local.network import Network
from training_gym.engines.local.packed_path import TRIED, PackedPath
from training_gym.models.weights import load_model
from training_gym.models.weights.tiny import tiny_model

SEGMENTS = (
    Segment(0, 150),
    Segment(150, 40, (0,), 150),
    Segment(190, 20, (0, 150), 190),
    Segment(210, 1, (0,), 150),
    Segment(211, 90, (0, 150), 190),
    Segment(301, 20),
    Segment(321, 300),
    Segment(621, 4, (321,), 300),
)
"""Three generations, a child of the root after a grandchild, other roots: 625 tokens."""

SMALL = (Segment(0, 20), Segment(20, 33, (0,), 20), Segment(53, 40, (0,), 20))

FORMS = (
    {},
    {"window": 60},
    {"window": 1},
    {"softcap": 3.0},
    {"sinks": torch.linspace(-3, 4, 6)},
    {"window": 200, "softcap": 3.0, "sinks": torch.linspace(-3, 4, 6)},
)


def seen_blocks(mask):
    """The mask as a kernel reads it: (N, N), from its lists of blocks."""
    size, length = mask.BLOCK_SIZE[0], mask.shape[-1]
    places = torch.arange(length)
    blocks = length // size, size, length // size, size
    within = mask.mask_mod(0, 0, places[:, None], places[None, :]).view(blocks)
    seen = torch.zeros(blocks, dtype=torch.bool)
    for counts, numbers, full in (
        (mask.kv_num_blocks, mask.kv_indices, False),
        (mask.full_kv_num_blocks, mask.full_kv_indices, True),
    ):
        for row, count in enumerate(counts[0, 0].tolist()):
            for column in numbers[0, 0, row, :count].tolist():
                seen[row, :, column] = True if full else within[row, :, column]
    return seen.view(length, length)


def dense(query, key, value, *, score_mod, block_mask, scale, enable_gqa, return_aux):
    """What `flex_attention` promises, by the whole matrix of scores; differentiable anywhere."""
    assert enable_gqa == (query.shape[1] != key.shape[1])
    repeats = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(repeats, dim=1) for part in (key, value))
    scores = query @ key.transpose(2, 3) * scale
    if score_mod is not None:
        scores = score_mod(scores, None, None, None, None)
    scores = scores.masked_fill(~seen_blocks(block_mask).to(scores.device), float("-inf"))
    output = scores.softmax(dim=-1) @ value
    if return_aux is None:
        return output
    assert return_aux.lse
    return output, AuxOutput(lse=scores.logsumexp(dim=-1))


def chain(segments, segment):
    """Packed places of what comes before a segment, and of its own tokens."""
    by_start = {each.start: each for each in segments}
    before = [by_start[start] for start in segment.prefix]
    return [p for each in before for p in range(each.start, each.start + each.length)]


@pytest.mark.parametrize("window", [None, 1, 60, 1000])
def test_a_token_sees_its_prefixes_and_what_comes_before_it_in_its_segment(window):
    length = padded_length(625)
    expected = torch.zeros(length, length, dtype=torch.bool)
    for segment in SEGMENTS:
        before = chain(SEGMENTS, segment)
        for place in range(segment.start, segment.start + segment.length):
            seen = [*before, *range(segment.start, place + 1)]
            expected[place, seen[-window:] if window else seen] = True
    padding = torch.arange(625, length)
    expected[padding, padding] = True
    places = torch.arange(length)
    sees = mask_function(tokens_of(SEGMENTS, length, window))
    assert torch.equal(sees(0, 0, places[:, None], places[None, :]), expected)


@pytest.mark.parametrize("strip", [1, 1 << 24])
@pytest.mark.parametrize("window", [None, 60])
def test_no_block_is_left_out_in_which_somebody_sees_somebody(window, strip, monkeypatch):
    monkeypatch.setattr("training_gym.engines.local.flexible.STRIP_ENTRIES", strip)
    tokens = tokens_of(SEGMENTS, 640, window)
    mask = block_mask(tokens)
    places = torch.arange(640)
    expected = mask_function(tokens)(0, 0, places[:, None], places[None, :])
    assert torch.equal(seen_blocks(mask), expected)
    of_blocks = expected.view(5, 128, 5, 128)
    assert int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum()) == int(
        of_blocks.any(dim=3).any(dim=1).sum()
    )
    assert int(mask.full_kv_num_blocks.sum()) == int(of_blocks.all(dim=3).all(dim=1).sum())


def test_few_lengths_and_little_padding():
    lengths = [padded_length(count) for count in range(1, 16385)]
    assert all(length % 128 == 0 for length in lengths)
    for count, length in enumerate(lengths, start=1):
        assert 0 <= length - count < max(128, count / 8)
    assert len({length for length in lengths if 4096 < length <= 8192}) == 8


def inputs(count, dtype, value_dim=8, device="cpu"):
    generator = torch.Generator().manual_seed(3)
    shapes = (6, 8), (3, 8), (3, value_dim)
    return [
        torch.randn(1, heads, count, dim, generator=generator, dtype=torch.float64)
        .to(device, dtype)
        .requires_grad_()
        for heads, dim in shapes
    ]


def there_and_back(attend, given, options):
    sinks = options.sinks
    if sinks is not None:
        sinks = sinks.to(given[0].device, given[0].dtype).detach().requires_grad_()
    leaves = given if sinks is None else [*given, sinks]
    attended = attend(
        *given, LayerOptions(0, options.scaling, False, options.window, options.softcap, sinks)
    )
    along = torch.linspace(-1, 2, attended.numel(), device=attended.device).view(attended.shape)
    return [attended, *torch.autograd.grad(attended, leaves, along.to(attended.dtype))]


@pytest.mark.parametrize("value_dim", [8, 4])
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_those_of_torchs_own_attention(form, value_dim):
    """In float64, with the definition of the kernel in its place."""
    options = LayerOptions(layer=0, scaling=0.4, **form)
    given = inputs(625, torch.float64, value_dim)
    expected = there_and_back(PackedLayout(SEGMENTS).attention, given, options)
    found = there_and_back(FlexibleAttention(SEGMENTS, dense), given, options)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_torchs_kernel_computes_the_same_and_is_made_for_few_shapes():
    """The kernel itself, traced as it is for CUDA and run operation by operation: values only."""
    made = []

    def backend(graph, example_inputs):
        made.append(graph)
        return graph.forward

    kernel = compiled(backend)
    for segments in (SMALL, TRIED[0], SEGMENTS):
        given = [part.detach() for part in inputs(sum(s.length for s in segments), torch.float32)]
        attend = FlexibleAttention(segments, kernel)
        for form in (FORMS[0], FORMS[1], FORMS[-1]):
            options = LayerOptions(layer=0, scaling=0.4, **form)
            expected = PackedLayout(segments).attention(*given, options)
            torch.testing.assert_close(attend(*given, options), expected, rtol=1e-4, atol=1e-5)
    assert len(made) == 4  # without and with a soft cap; for the first length, and for any


def test_under_autocast_all_goes_in_as_torchs_own_attention_takes_it():
    taken = []

    def noting(*given, **options):
        taken.extend(part.dtype for part in given)
        assert not torch.is_autocast_enabled("cpu")
        return dense(*given, **options)

    query, key, value = inputs(93, torch.float32)
    options = LayerOptions(layer=0, scaling=0.4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = FlexibleAttention(SMALL, noting)(query, key, value.bfloat16(), options)
        expected = PackedLayout(SMALL).attention(query, key, value.bfloat16(), options)
    assert set(taken) == {torch.bfloat16}
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)


@pytest.fixture
def network(tmp_path):
    return Network(sharp_model(tiny_model(tmp_path, "gpt_oss")))


def failing(*given, **options):
    raise RuntimeError("no valid configurations\nand more")


def inexact(*given, **options):
    output, further = dense(*given, **options)
    return output * 1.01, further


def not_a_number(*given, **options):
    output, further = dense(*given, **options)
    return output * float("nan"), further


class _WrongWayBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, key):
        return key.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.roll(1, dims=2)


def wrong_way_back(query, key, value, **options):
    return dense(query, _WrongWayBack.apply(key), value, **options)


def only_there(query, key, value, **options):
    """As torch's kernel on a CPU."""
    if query.requires_grad:
        raise NotImplementedError("no backward here")
    return dense(query, key, value, **options)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (failing, "it fails (RuntimeError: no valid configurations)"),
        (inexact, "in layer 0 its results are off by 0.01 of their norm"),
        (not_a_number, "in layer 0 its results are off by nan"),
        (wrong_way_back, "in layer 0 its gradients of the keys are off by"),
        (only_there, "it fails (NotImplementedError: no backward here)"),
    ],
)
def test_a_kernel_that_differs_or_raises_is_not_taken_and_it_is_said_once(
    kernel, why, network, monkeypatch, capfd
):
    monkeypatch.setattr(parity, "kernels_for", lambda device: (kernel,))
    assert network.check_parity() < 1e-5
    assert network.packing.name == "scaled_dot_product_attention"
    (line,) = capfd.readouterr().err.splitlines()
    assert "attend by scaled_dot_product_attention instead of flex_attention" in line
    assert why in line


def test_a_proven_kernel_is_taken_for_packed_passes(network, monkeypatch, capfd):
    computed = []

    @functools.wraps(dense)
    def counted(*given, **options):
        computed.append(given[0].shape[2])
        return dense(*given, **options)

    monkeypatch.setattr(parity, "kernels_for", lambda device: (failing, counted))
    assert network.check_parity() < 1e-5
    assert (network.packing.name, capfd.readouterr().err) == ("flex_attention", "")
    depth = network.model.config.num_hidden_layers
    assert computed == [384] * depth + [128] * 2 * depth  # compared, and once with the model's own
    computed.clear()
    network.score(list(range(40)))
    assert computed == [128] * depth


def test_a_kernel_that_fails_at_a_later_shape_is_left_there(network, capfd):
    def narrow(*given, **options):
        if given[0].shape[2] > 128:
            raise RuntimeError("out of resources: shared memory")
        return dense(*given, **options)

    expected = network.score(list(range(200)))
    network.packing = PackedPath(narrow)
    short = network.score(list(range(100)))
    assert network.packing.by_kernel
    assert network.score(list(range(200))) == expected
    assert short == pytest.approx(network.score(list(range(100))), abs=1e-5)
    assert capfd.readouterr().err.count("out of resources") == 1


def test_memory_that_runs_out_is_not_the_kernels_fault(network):
    def greedy(*given, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    network.packing = PackedPath(greedy)
    with pytest.raises(torch.OutOfMemoryError):
        network.score(list(range(40)))
    assert network.packing.by_kernel


@pytest.mark.parametrize("family", ["gemma3_text", "gpt_oss", "qwen3_5_text"])
def test_gradients_of_a_step_through_the_kernel(family, tmp_path, monkeypatch):
    """Windows, sinks, layers with states between those with attention: the kernel's definition."""
    model = sharp_model(tiny_model(tmp_path, family))
    network = Network(model)
    network.packing = PackedPath(dense)
    check_gradients(network, model, monkeypatch)
    assert network.packing.by_kernel


def test_there_is_no_kernel_on_a_cpu():
    assert kernels_for(torch.device("cpu")) == ()


on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@on_cuda
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_on_cuda_values_and_gradients_are_those_in_float64(form, number, dtype, near):
    kernel = kernels_for(torch.device("cuda"))[number]
    generator = torch.Generator().manual_seed(3)
    given = [
        torch.randn(1, heads, 625, 64, generator=generator).to("cuda", dtype).requires_grad_()
        for heads in (6, 3, 3)
    ]
    options = LayerOptions(layer=0, scaling=0.125, **form)
    exact = [part.detach().double().requires_grad_() for part in given]
    expected = there_and_back(PackedLayout(SEGMENTS).attention, exact, options)
    found = there_and_back(FlexibleAttention(SEGMENTS, kernel), given, options)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < near * other.norm()


@on_cuda
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_on_cuda_a_model_turns_to_the_kernel(autocast, tmp_path, capfd):
    model = load_model(tiny_model(tmp_path, "llama"), dtype="float32", device="cuda").eval()
    network = Network(model, autocast=autocast)
    network.check_parity()
    assert (network.packing.name, capfd.readouterr().err) == ("flex_attention", "")
