import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planning.known import H200, LAPTOP, QWEN3_8B, SMOLLM2_135M, haiku

from training_gym.planning.memory import (
    GIB,
    GRAPH_BYTES,
    GRAPHS_KEPT,
    Copies,
    Shape,
    adapter_parameters,
    cached_tokens,
    copies_of,
    estimate_memory,
)
from training_gym.spec.algorithms import SFT
from training_gym.spec.recipe import LocalEngine, Lora

# Measured peaks of a full fine-tuning step of SmolLM2-135M in float32 on CPU, 4 prompts with 8
# answers each, the prompt computed once: resident memory in GiB by packed tokens.
MEASURED = [(4 * (40 + 8 * 48), 5.3e9 / GIB), (4 * (256 + 8 * 64), 7.7e9 / GIB)]


@pytest.mark.parametrize(("tokens", "peak_gib"), MEASURED)
def test_estimate_agrees_with_measured_training_steps(tokens: int, peak_gib: float) -> None:
    shape = Shape(slots=1, token_budget=tokens, sequence_tokens=88)
    predicted = estimate_memory(haiku(), SMOLLM2_135M, LAPTOP, shape).total_gib
    assert peak_gib <= predicted < 1.25 * peak_gib


def test_estimate_agrees_with_the_engines_first_step() -> None:
    """3.77 GiB at 1383 packed tokens, 32 slots of 93 tokens; moments did not exist yet."""
    run = haiku(engine=LocalEngine(logprob_chunk_tokens=512))
    shape = Shape(slots=32, token_budget=1383, sequence_tokens=93)
    predicted = estimate_memory(run, SMOLLM2_135M, LAPTOP, shape)
    at_backward = predicted.total_gib - predicted.optimizer_gib - predicted.gradients_gib
    assert 3.77 <= at_backward < 1.15 * 3.77


shapes = st.builds(
    Shape,
    slots=st.integers(1, 512),
    token_budget=st.integers(64, 65536),
    sequence_tokens=st.integers(1, 65536),
)


@given(shapes, shapes)
def test_memory_never_falls_when_a_shape_grows(one: Shape, other: Shape) -> None:
    larger = Shape(
        max(one.slots, other.slots),
        max(one.token_budget, other.token_budget),
        max(one.sequence_tokens, other.sequence_tokens),
    )
    for architecture, machine in ((SMOLLM2_135M, LAPTOP), (QWEN3_8B, H200)):
        small = estimate_memory(haiku(), architecture, machine, one)
        large = estimate_memory(haiku(), architecture, machine, larger)
        assert small.total_gib <= large.total_gib


@given(st.integers(1, 256), shapes)
def test_an_adapter_trains_in_less_memory_than_all_weights(rank: int, shape: Shape) -> None:
    full = estimate_memory(haiku(), QWEN3_8B, H200, shape)
    lora = estimate_memory(haiku(adapter=Lora(rank=rank)), QWEN3_8B, H200, shape)
    assert lora.total_gib < full.total_gib
    assert lora.weights_gib > full.weights_gib


def test_an_adapters_parameters_are_counted_per_linear_layer() -> None:
    # Llama layers of SmolLM2-135M: q 576x576, k and v 576x192, o 576x576, gate/up/down 576x1536.
    widths = (576 + 576) + 2 * (576 + 192) + (576 + 576) + 3 * (576 + 1536)
    assert adapter_parameters(SMOLLM2_135M, Lora(rank=8)) == 8 * 30 * widths


def test_supervised_training_without_evaluation_needs_no_cache() -> None:
    shape = Shape(slots=8, token_budget=1024, sequence_tokens=512)
    sft = haiku(algorithm=SFT(), group_size=1)
    assert estimate_memory(sft, SMOLLM2_135M, LAPTOP, shape).kv_cache_gib == 0
    assert estimate_memory(haiku(), SMOLLM2_135M, LAPTOP, shape).kv_cache_gib > 0


def test_vllm_takes_what_it_was_given() -> None:
    shape = Shape(slots=8, token_budget=1024, sequence_tokens=512)
    engine = {"sampler": {"memory_fraction": 0.25, "cpu_cache_gib": 3}, "deterministic": False}
    on_device = estimate_memory(haiku(engine=engine), SMOLLM2_135M, H200, shape)
    assert on_device.kv_cache_gib == H200.accelerator_memory_gib / 4
    beside = estimate_memory(haiku(engine=engine), SMOLLM2_135M, LAPTOP, shape)
    copy = 4 * SMOLLM2_135M.num_parameters / GIB
    assert beside.kv_cache_gib == pytest.approx(3 + copy)


def test_what_an_accelerator_computes_in_half_precision_takes_half() -> None:
    shape = Shape(slots=8, token_budget=64, sequence_tokens=64)
    on_device = estimate_memory(haiku(engine={"graphs": False}), SMOLLM2_135M, H200, shape)
    forced = estimate_memory(haiku(engine={"device": "cpu"}), SMOLLM2_135M, H200, shape)
    assert on_device.kv_cache_gib * 2 == forced.kv_cache_gib
    assert on_device.gradients_gib == forced.gradients_gib
    assert on_device.available_gib > forced.available_gib


def test_a_frozen_model_beside_the_policy_takes_its_weights() -> None:
    shape = Shape(slots=1, token_budget=512, sequence_tokens=88)
    alone = estimate_memory(haiku(), SMOLLM2_135M, LAPTOP, shape)
    beside = SMOLLM2_135M.changed(companion_parameters=SMOLLM2_135M.num_parameters)
    both = estimate_memory(haiku(), beside, LAPTOP, shape)
    weights = 4 * SMOLLM2_135M.num_parameters / GIB
    assert both.weights_gib - alone.weights_gib == pytest.approx(weights)
    assert both.optimizer_gib == alone.optimizer_gib


def test_copies_of_weights_are_counted_where_they_are_made() -> None:
    small = SMOLLM2_135M
    head = 4.0 * small.vocab_size * small.hidden_size
    assert copies_of(haiku(), small, LAPTOP) == Copies(head, 4.0 * small.num_parameters)
    graphs = float(GRAPHS_KEPT * GRAPH_BYTES)
    assert copies_of(haiku(), QWEN3_8B, H200) == Copies(
        decoding=2.0 * QWEN3_8B.num_parameters, graphs=graphs, scratch_rows=1
    )
    without = haiku(engine={"graphs": False, "dtype": "float32"})
    assert copies_of(without, QWEN3_8B, H200) == Copies(decoding=4.0 * QWEN3_8B.num_parameters)
    adapted = copies_of(haiku(adapter=Lora(rank=8)), QWEN3_8B, H200)
    assert adapted.decoding > 2 * (
        QWEN3_8B.num_parameters + adapter_parameters(QWEN3_8B, Lora(rank=8))
    )
    by_vllm = haiku(engine={"sampler": "vllm", "deterministic": False})
    assert copies_of(by_vllm, QWEN3_8B, H200) == Copies()
    assert copies_of(haiku(algorithm=SFT(), group_size=1), small, LAPTOP) == Copies(head)
    assert copies_of(haiku(), small.changed(family="gemma3_text"), LAPTOP) == Copies()
    assert copies_of(haiku(engine={"device": "mps"}), small, LAPTOP) == Copies()


def test_a_copy_is_counted_as_far_as_nothing_else_makes_room_for_it() -> None:
    """Under an adapter there are no gradients whose place it could take while it samples."""
    small = SMOLLM2_135M
    roomy = Shape(slots=1, token_budget=4096, sequence_tokens=64)
    tight = Shape(slots=1, token_budget=64, sequence_tokens=64)
    head = 4 * small.vocab_size * small.hidden_size / GIB
    weights = 4 * small.num_parameters / GIB
    full = estimate_memory(haiku(), small, LAPTOP, tight)
    assert full.weights_gib == pytest.approx(weights + head)
    adapter = Lora(rank=4)
    adapted = 4 * adapter_parameters(small, adapter) / GIB
    run = haiku(adapter=adapter)
    assert estimate_memory(run, small, LAPTOP, roomy).weights_gib == pytest.approx(
        weights + adapted + head
    )
    found = estimate_memory(run, small, LAPTOP, tight)
    sampling = 2 * weights + adapted + found.optimizer_gib + found.kv_cache_gib
    assert found.total_gib - found.logits_gib - found.process_gib == pytest.approx(sampling)


def test_on_an_accelerator_a_copy_takes_the_place_of_trainings_casts() -> None:
    shape = Shape(slots=8, token_budget=1024, sequence_tokens=500)
    recorded = estimate_memory(haiku(), SMOLLM2_135M, H200, shape)
    plain = estimate_memory(haiku(engine={"graphs": False}), SMOLLM2_135M, H200, shape)
    assert recorded.weights_gib == plain.weights_gib
    assert recorded.process_gib - plain.process_gib == pytest.approx(
        GRAPHS_KEPT * GRAPH_BYTES / GIB
    )
    assert recorded.kv_cache_gib == pytest.approx(plain.kv_cache_gib * 9 / 8)
    assert cached_tokens(500) == 512
    longer = Shape(slots=8, token_budget=1024, sequence_tokens=512)
    assert estimate_memory(haiku(), SMOLLM2_135M, H200, longer) == recorded
