"""Decoding over copies of the weights, in steps that are recorded and replayed.

On a CPU a stand-in records: see `recording`. The last tests need a GPU and record with it.
"""

import asyncio

import pytest
import torch
from tests.unit.engines.families import sharp_model
from tests.unit.engines.recording import ReplayingRecorder
from tests.unit.engines.test_decoding import HELD, two_steps
from tests.unit.planning.known import H200, LAPTOP, haiku

from training_gym.engines.local import graphs
from training_gym.engines.local.arrangements import PackedWeights
from training_gym.engines.local.decoding import PLAIN_TYPES, Decoder
from training_gym.engines.local.dense import DenseWeights
from training_gym.engines.local.fixed_steps import FixedSteps, padded_length, padded_rows
from training_gym.engines.local.graphs import CaptureFailedError, Graphs
from training_gym.engines.local.network import Network
from training_gym.engines.local.parity import check, stepped_logprobs
from training_gym.engines.local.paths import DecodingPath
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.models import architecture
from training_gym.models.weights.tiny import tiny_model
from training_gym.planning.phases import footprint
from training_gym.planning.plan import make_plan
from training_gym.spec.recipe import Lora
from training_gym.spec.sampling import Prompt, SampleKey, Sampling


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(family):
        if family not in made:
            made[family] = tiny_model(tmp_path_factory.mktemp("plain") / family, family)
        return made[family]

    return folder


def over_copies(network, dtype=torch.float32, recorder=None):
    """The network decoding as it does on CUDA."""
    decoder = Decoder(network._causal_lm, lambda: DenseWeights(dtype))
    steps = None if recorder is None else FixedSteps(decoder, network.vocab_size, recorder)
    network.decoding = DecodingPath(decoder, steps)
    return network


def by_modules(network):
    return two_steps(network, lambda *inputs: network.logits(network.hidden(*inputs)))


# The copies.


@torch.no_grad()
@pytest.mark.parametrize("family", PLAIN_TYPES)
def test_a_step_over_copies_is_what_the_modules_compute(folders, family):
    network = over_copies(Network(sharp_model(folders(family))))
    assert (two_steps(network, network.next_logits) - by_modules(network)).abs().max() < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("family", PLAIN_TYPES)
def test_in_half_precision_a_step_is_as_exact_as_the_modules(folders, family):
    model = sharp_model(folders(family))
    exact = by_modules(Network(model))
    network = Network(model, autocast=torch.bfloat16)
    assert network.decoding.name == "copies"
    ours = (two_steps(network, network.next_logits) - exact).abs()
    theirs = (by_modules(network) - exact).abs()
    assert 0 < ours.mean() < 1.3 * theirs.mean()
    # Roundings are the same ones, except those of attention's and the norms' inner sums.
    assert (two_steps(network, network.next_logits) - by_modules(network)).abs().mean() < (
        0.5 * theirs.mean()
    )


@torch.no_grad()
def test_keys_and_values_are_kept_in_the_type_they_are_read_in(folders):
    network = Network(sharp_model(folders("qwen3")), autocast=torch.bfloat16)
    cache = network.cache(2)
    cache.reserve(8)
    positions = torch.arange(4)
    network.hidden(positions + 40, positions, SlotLayout(cache, (0,), (4,), (0,)))
    keys, values = cache.read(0, 0, 4)
    assert {keys.dtype, values.dtype} == {torch.bfloat16}
    assert keys.abs().sum() > 0


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapters_small_changes_are_not_rounded_away(folders, dtype):
    """As after a first update: a hundredth of what half precision tells apart in a weight."""
    model = sharp_model(folders("llama"), adapter=Lora(rank=4))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.normal_(std=1e-5)
        elif "lora_" not in name:
            parameter.copy_(parameter.bfloat16())
    network = over_copies(Network(model), dtype)
    decoder = network.decoding._decoder
    decoder.prepare()
    layer = decoder._layers[0].query_key_value
    x = torch.randn(3, layer._weight.shape[1]).to(dtype).float()
    with_adapter = x @ layer._down.float().T @ layer._up.float().T
    merged = PackedWeights().linear(
        *(getattr(model.base_model.model.model.layers[0].self_attn, n) for n in layer_names())
    )
    with model.disable_adapter():
        base = PackedWeights().linear(
            *(getattr(model.base_model.model.model.layers[0].self_attn, n) for n in layer_names())
        )
        without = base(x)
    change = merged(x) - without
    assert change.abs().max() > 0
    torch.testing.assert_close(with_adapter, change, rtol=0.05, atol=0.05 * float(change.std()))


def layer_names():
    return "q_proj", "k_proj", "v_proj"


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_copies_follow_weights_and_adapters_where_they_lie(folders, family):
    network = over_copies(Network(sharp_model(folders(family), adapter=Lora(rank=4))))
    base = two_steps(network, network.next_logits)
    copy = network.decoding._decoder._layers[0].query_key_value._weight
    layouts = network.decoding._decoder.layouts
    for name, parameter in network.model.named_parameters():
        parameter.mul_(1.05)
        if "lora_B" in name:
            parameter.normal_(std=0.1)
    assert (two_steps(network, network.next_logits) - by_modules(network)).abs().max() < 1e-5
    assert (two_steps(network, network.next_logits) - base).abs().max() > 1e-3
    assert network.decoding._decoder._layers[0].query_key_value._weight is copy
    assert network.decoding._decoder.layouts == layouts
    with network.model.disable_adapter():  # other copies are needed: they lie elsewhere
        assert (two_steps(network, network.next_logits) - by_modules(network)).abs().max() < 1e-5
    assert network.decoding._decoder.layouts > layouts


# Steps over fixed buffers.


@pytest.mark.parametrize(
    ("count", "rows", "length"),
    [(1, 1, 64), (3, 4, 64), (9, 16, 64), (65, 80, 128), (129, 160, 192), (1100, 1280, 1152)],
)
def test_numbers_are_rounded_up_to_few(count, rows, length):
    assert (padded_rows(count, 9999), padded_length(count, 9999)) == (rows, length)
    assert padded_rows(count, count) == padded_length(count, count) == count


def test_a_quarter_of_the_rows_and_an_eighth_of_the_keys_are_wasted_at_most():
    for count in range(9, 3000):
        assert count <= padded_rows(count, 9999) < max(1.25 * count, count + 8)
        assert count <= padded_length(count, 9999) < max(1.126 * count, count + 64)
    assert len({padded_rows(count, 256) for count in range(1, 257)}) < 24


@torch.no_grad()
@pytest.mark.parametrize("family", PLAIN_TYPES)
def test_recorded_steps_are_what_the_modules_compute(folders, family):
    """Different lengths and numbers of rows, beyond and within the windows; most are replayed."""
    network = Network(sharp_model(folders(family)))
    recorder = ReplayingRecorder()

    def walk(next_logits):
        cache = network.cache(6)
        cache.reserve(64)
        places = [place for length in HELD for place in range(length)]
        positions = torch.tensor(places)
        network.hidden(
            positions % 90 + 32, positions, SlotLayout(cache, (0, 1, 2), HELD, (0, 0, 0))
        )
        found = []
        for step in range(7):
            starts = tuple(length + step for length in HELD)[: 3 if step < 5 else 2]
            layout = SlotLayout(cache, tuple(range(len(starts))), (1,) * len(starts), starts)
            ids = torch.arange(50, 50 + len(starts)) + step
            found.append(next_logits(ids, torch.tensor(starts), layout).log_softmax(-1))
        return torch.cat(found)

    expected = walk(lambda *inputs: network.logits(network.hidden(*inputs)))
    over_copies(network, recorder=recorder)
    assert (walk(network.next_logits) - expected).abs().max() < 1e-5
    steps = network.decoding._steps.graphs
    assert (recorder.steps, steps.num_recorded, steps.num_replayed) == (2, 2, 3)


@torch.no_grad()
def test_rows_that_are_warm_are_not_touched(folders):
    """Three rows are computed as four, and the fourth one is warm."""
    network = over_copies(Network(sharp_model(folders("llama"))), recorder=ReplayingRecorder())
    cache = network.cache(5)
    cache.reserve(16)
    for layer in range(network._causal_lm.config.num_hidden_layers):
        shape = network._causal_lm.config.num_key_value_heads, 16, 16
        for row in range(5):
            cache.write(layer, row, 0, torch.full(shape, row + 0.5), torch.full(shape, row + 0.5))
    for step in range(4):
        layout = SlotLayout(cache, (0, 1, 2), (1, 1, 1), (4 + step, 2 + step, 9 + step))
        network.next_logits(torch.tensor([50, 60, 70]), torch.tensor(layout.starts), layout)
    assert network.decoding._steps.graphs.num_replayed == 2
    for row in range(5):
        keys, values = cache.read(0, row, 16)
        changed = ((keys != row + 0.5).any(dim=(0, 1, 3)), (values != row + 0.5).any(dim=(0, 1, 3)))
        written = {0: [4, 5, 6, 7], 1: [2, 3, 4, 5], 2: [9, 10, 11, 12]}.get(row, [])
        assert all(each.nonzero().flatten().tolist() == written for each in changed)


def answers(network, codec, compute, *, slots=3, updates=()):
    """What ten requests of different lengths are answered with, `updates` made in between.

    They wait for room, end at different times, begin with what others hold, and the longest come
    last, so that the cache grows.
    """

    async def go():
        sampler = LocalSampler(network, codec, compute, slots=slots, max_sequence_tokens=150)
        found = []
        for update in (lambda: None, *updates):
            await sampler.forget()
            update()
            for longer in (0, 80):
                asked = [
                    sampler.generate(
                        Prompt(token_ids=tuple(range(40, 46 + number // 2 * 3 + longer))),
                        Sampling(max_tokens=4 + 5 * (number % 3)),
                        SampleKey(seed=2, task=str(number)),
                    )
                    for number in range(5)
                ]
                found += await asyncio.gather(*asked)
        await sampler.close()
        return found

    return asyncio.run(go())


def same(ours, theirs):
    assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def scaled(model):
    """A change of the weights that every answer shows; repeated on equal models it is the same."""

    def change():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.8)

    return change


@pytest.mark.parametrize("retains", [False, True])
def test_the_sampler_draws_the_same_from_recorded_steps(folders, codec, compute, retains):
    plain = Network(sharp_model(folders("qwen3")))
    expected = answers(plain, codec, compute, updates=[scaled(plain.model)])
    recorder = ReplayingRecorder()
    network = over_copies(Network(sharp_model(folders("qwen3"))), recorder=recorder)
    network.retains = retains
    change = scaled(network.model)

    def update():
        network.release()
        change()

    found = answers(network, codec, compute, updates=[update])
    same(found, expected)
    assert found[:10] != found[10:]
    steps = network.decoding._steps.graphs
    assert steps.num_replayed > 2 * steps.num_recorded > 0
    # Once when the cache grew; without what is retained also when the weights changed, and when
    # the cache grew again.
    assert recorder.forgotten == (1 if retains else 3)


def test_answers_over_an_update_go_on_in_the_steps_that_are_recorded(folders):
    """Rows are in use while the weights change: the replayed steps read the new ones."""
    network = over_copies(Network(sharp_model(folders("llama"))), recorder=ReplayingRecorder())
    network.retains = True
    with torch.inference_mode():
        stepped_logprobs(network, torch.arange(40, 52))
    recorded = network.decoding._steps.graphs.num_recorded
    cache, _, _ = network.decoding._steps._over
    layout = SlotLayout(cache, (0, 1), (1, 1), (5, 6))
    inputs = torch.tensor([50, 60]), torch.tensor([5, 6]), layout
    with torch.inference_mode():
        network.next_logits(*inputs)  # two rows, not three or four
        before = network.next_logits(*inputs).clone()
    network.release()
    scaled(network.model)()
    with torch.inference_mode():
        after = network.next_logits(*inputs).clone()
        expected = network.logits(network.hidden(*inputs))
    assert network.decoding._steps.graphs.num_recorded == recorded + 1
    assert (after - before).abs().max() > 1e-2
    assert (after - expected).abs().max() < 1e-4


# What is recorded, kept and dropped.


class CountingRecorder:
    """Implements `graphs.Recorder`; fails as it is told."""

    def __init__(self, error=None):
        self.error, self.forgotten = error, 0

    def record(self, step):
        if self.error is not None:
            raise self.error
        return step

    def forget(self):
        self.forgotten += 1


def test_a_shape_is_recorded_when_it_comes_again_and_the_least_used_one_is_given_up():
    kept, ran = Graphs(CountingRecorder(), most=2), []
    for shape in "aabbaaccbb":
        kept.run(shape, lambda shape=shape: ran.append(shape))
    assert (kept.num_recorded, kept.num_replayed) == (4, 3)  # b was given up for c, and came again
    assert list(kept._recorded) == ["c", "b"]
    kept.drop()
    assert kept._recorder.forgotten == 1
    kept.run("c", lambda: ran.append("c"))
    assert kept.num_recorded == 4


def test_a_recording_that_fails_is_told_apart_from_memory_that_runs_out():
    ended = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    ended.__context__ = RuntimeError("cannot be captured: a number is read\nmore of it")
    kept = Graphs(CountingRecorder(ended))
    kept.run("a", lambda: None)
    with pytest.raises(CaptureFailedError, match=r"^cannot be captured: a number is read$"):
        kept.run("a", lambda: None)
    ended.__context__ = torch.OutOfMemoryError("CUDA out of memory")
    kept.run("a", lambda: None)
    with pytest.raises(torch.OutOfMemoryError):
        kept.run("a", lambda: None)
    assert kept._recorder.forgotten == 2


def test_a_sampler_whose_steps_cannot_be_recorded_goes_on_and_says_so(
    folders, codec, compute, capsys
):
    expected = answers(Network(sharp_model(folders("llama"))), codec, compute)
    failing = CountingRecorder(RuntimeError("operation not permitted"))
    network = over_copies(Network(sharp_model(folders("llama"))), recorder=failing)
    same(answers(network, codec, compute), expected)
    assert network.decoding.name == "copies"
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "decoding goes on by copies instead of graphs, which is slower: recording failed "
        "(operation not permitted)"
    ]


def test_memory_that_runs_out_while_recording_halves_the_rows(folders, codec, compute):
    expected = answers(Network(sharp_model(folders("llama"))), codec, compute, slots=4)
    recorder = ReplayingRecorder()
    record, failures = recorder.record, iter([torch.OutOfMemoryError("CUDA out of memory")])

    def runs_out(step):
        for error in failures:
            raise error
        return record(step)

    recorder.record = runs_out
    network = over_copies(Network(sharp_model(folders("llama"))), recorder=recorder)
    same(answers(network, codec, compute, slots=4), expected)
    assert network.decoding.name == "graphs"
    assert network.decoding._steps._over[0].num_rows == 2


def test_requests_for_several_adapters_are_computed_by_modules(folders):
    model = sharp_model(folders("llama"), adapter=Lora(rank=4))
    network = over_copies(Network(model), recorder=ReplayingRecorder())
    with torch.inference_mode():
        stepped_logprobs(network, torch.arange(40, 52))
    assert network.decoding._decoder.holds_copies
    network.route("base")
    with torch.inference_mode():
        stepped_logprobs(network, torch.arange(40, 52))
    assert not network.decoding._decoder.holds_copies


# The comparison with the model's own forward.


class StaleRecorder(ReplayingRecorder):
    """Replays without looking at what is new, as a graph over a buffer that has moved does."""

    def record(self, step):
        step()
        return lambda: None


class WrongRecorder(ReplayingRecorder):
    """Replays all but the first layer's writing of keys."""

    def record(self, step):
        repeat = super().record(step)
        calls = repeat.__self__.calls
        del calls[next(n for n, call in enumerate(calls) if "index_put" in str(call[0]))]
        return repeat


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_comparison_runs_what_is_replayed(folders, capsys, autocast):
    network = Network(sharp_model(folders("qwen3")), autocast=autocast)
    recorder = ReplayingRecorder()
    over_copies(network, autocast or torch.float32, recorder)
    assert check(network) < (1e-5 if autocast is None else 0.1)
    assert network.decoding.name == "graphs"
    assert network.decoding._steps.graphs.num_replayed == 4
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("recorder", [StaleRecorder, WrongRecorder])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_graphs_that_compute_something_else_are_left(folders, capsys, recorder, autocast):
    network = Network(sharp_model(folders("llama")), autocast=autocast)
    over_copies(network, autocast or torch.float32, recorder())
    assert check(network) < (1e-5 if autocast is None else 0.1)
    assert network.decoding.name == "copies"
    assert "decoding goes on by copies instead of graphs" in capsys.readouterr().err


def test_a_decoder_that_fails_or_computes_something_else_is_left(folders, capsys, monkeypatch):
    def breaks(self, x):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr("training_gym.engines.local.dense.DenseLinear.__call__", breaks)
    network = Network(sharp_model(folders("llama")), autocast=torch.bfloat16)
    over_copies(network, torch.bfloat16, ReplayingRecorder())
    assert check(network) < 0.1
    assert network.decoding.by_modules
    said = capsys.readouterr().err
    assert "by modules instead of copies, which is slower: it fails (no kernel image" in said

    half = DenseWeights.gated

    def doubled(self, gate, up):
        inner = half(self, gate, up)
        return lambda x: inner(x) * 1.2

    monkeypatch.undo()
    monkeypatch.setattr(DenseWeights, "gated", doubled)
    network = Network(sharp_model(folders("llama")), autocast=torch.bfloat16)
    assert check(network) < 0.1
    assert network.decoding.by_modules


# Memory.


@torch.no_grad()
@pytest.mark.parametrize("adapter", [None, Lora(rank=4)])
def test_the_planner_counts_what_is_allocated(folders, adapter):
    """On a GPU it would be on: the planner counts for one, and the stand-in records for it."""
    folder = folders("qwen3")
    facts = architecture.read(folder)
    run = haiku(adapter=adapter)
    counted = footprint(make_plan(run, facts, H200, {}))
    model = sharp_model(folder, adapter=adapter)
    network = Network(model, autocast=torch.bfloat16)
    over_copies(network, torch.bfloat16, ReplayingRecorder())
    with torch.inference_mode():
        stepped_logprobs(network, torch.arange(40, 52))
    steps = network.decoding._steps
    cache, _, _ = steps._over
    assert cache.num_bytes == 5 * 64 * counted.per_cached_token
    assert counted.scratch_rows == 1
    assert steps._logits.numel() * 4 == 4 * counted.per_logits_row
    copies = network.decoding._decoder._arrangement._copies
    held = [kept for copy in copies for kept in vars(copy).values()]
    size = sum(kept.numel() * kept.element_size() for kept in held if torch.is_tensor(kept))
    not_copied = 0 if facts.tied_embeddings else 2 * facts.vocab_size * facts.hidden_size
    assert 0.8 * counted.decoding_weights < size + not_copied <= 1.01 * counted.decoding_weights


def test_the_planner_counts_the_heads_copy_of_training_on_a_cpu(folders):
    network = Network(sharp_model(folders("llama")))
    facts = architecture.read(folders("llama"))
    counted = footprint(make_plan(haiku(), facts, LAPTOP, {}))
    network.score([40, 41, 42])
    assert network._projection._packed._weight.numel() * 4 == counted.head_copy
    network.release()
    assert network._projection._packed is None


# With a GPU.

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")


def cuda_network(folder, *, autocast, recorded):
    device = torch.device("cuda")
    model = sharp_model(folder).to(device)
    recorder = graphs.recorder_on(device, wanted=recorded)
    return Network(model, autocast=autocast, recorder=recorder)


@on_cuda
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
@pytest.mark.parametrize("family", PLAIN_TYPES)
def test_on_cuda_graphs_agree_with_the_models_own_forward(folders, family, autocast):
    network = cuda_network(folders(family), autocast=autocast, recorded=True)
    network.check_parity()
    assert network.decoding.name == "graphs"
    assert network.decoding._steps.graphs.num_replayed == 4


@on_cuda
@pytest.mark.parametrize("retains", [False, True])
def test_on_cuda_the_sampler_draws_the_same_with_and_without_graphs(
    folders, codec, compute, retains
):
    found = []
    for recorded in (False, True):
        network = cuda_network(folders("qwen3"), autocast=None, recorded=recorded)
        network.retains = retains
        change = scaled(network.model)

        def update(network=network, change=change):
            network.release()
            change()

        found.append(answers(network, codec, compute, updates=[update]))
        assert network.decoding.name == ("graphs" if recorded else "copies")
    same(*found)


@on_cuda
def test_on_cuda_a_step_that_reads_a_number_cannot_be_recorded_and_leaves_the_stream_as_it_was():
    device = torch.device("cuda")
    kept = Graphs(graphs.CudaRecorder(device))
    x = torch.ones(3, device=device)
    before = torch.cuda.current_stream()
    kept.run("a", lambda: x.sum().item())
    with pytest.raises(CaptureFailedError):
        kept.run("a", lambda: x.sum().item())
    assert torch.cuda.current_stream() == before
    assert float(x.sum()) == 3.0
