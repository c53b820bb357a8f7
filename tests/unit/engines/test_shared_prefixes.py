"""Reading what rows share once, against each row reading its own copy."""

import asyncio
import itertools
import random

import pytest
import torch
from tests.unit.engines.families import FAMILIES, own_logprobs, sharp_model

from training_gym.engines.local import shared_prefixes
from training_gym.engines.local.cache import SlotCache
from training_gym.engines.local.kernels import LayerOptions
from training_gym.engines.local.network import Network
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.shared_prefixes import SharedPrefix, plan
from training_gym.engines.local.slot_layout import SlotLayout
from training_gym.engines.local.slots import SlotTable
from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import tiny_model
from training_gym.spec.recipe import Lora
from training_gym.spec.sampling import Prompt, SampleKey, Sampling

PREFIXES = (SharedPrefix((0, 2, 3, 7), 40), SharedPrefix((1, 6), 17))
STARTS = (40, 30, 70, 44, 5, 90, 17, 52)
"""Tokens that eight rows hold; rows 4 and 5 share nothing."""


@pytest.fixture(autouse=True)
def shared_however_short(monkeypatch):
    monkeypatch.setattr(shared_prefixes, "WORTH_NUMBERS", 1)


def filled(num_key_heads, head_dim, value_dim, dtype):
    """A cache of eight rows that holds what the prefixes say, and the new tokens' tensors."""
    generator = torch.Generator().manual_seed(1)
    cache = SlotCache(10)
    cache.reserve(100)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    for row, start in enumerate(STARTS):
        key, value = drawn(num_key_heads, start, head_dim), drawn(num_key_heads, start, value_dim)
        cache.write(0, row, 0, key, value)
    for prefix in PREFIXES:
        for row in prefix.rows[1:]:
            cache.copy(prefix.rows[0], row, prefix.length)
    rows = len(STARTS)
    new = drawn(rows, num_key_heads, head_dim), drawn(rows, num_key_heads, value_dim)
    return cache, *new, drawn(rows, 2 * num_key_heads, head_dim) * 3


def decoded(prefixes, inputs, options):
    cache, key, value, query = inputs
    rows = tuple(range(len(STARTS)))
    layout = SlotLayout(cache, rows, (1,) * len(rows), STARTS, prefixes=prefixes)
    return layout.decode(query, key, value, options), layout


@pytest.mark.parametrize("band", [0, 2000, 1 << 20])
@pytest.mark.parametrize(
    ("form", "value_dim"),
    [
        ({}, 8),
        ({}, 4),  # latent attention's values are narrower than its keys
        ({"softcap": 5.0}, 8),
        ({"sinks": torch.linspace(-2, 6, 6)}, 8),
        ({"window": 60}, 8),  # within the long rows, beyond all of the prefixes' rows but one
        ({"window": 20}, 8),
        ({"window": 4, "softcap": 5.0, "sinks": torch.linspace(-2, 6, 6)}, 8),
    ],
)
def test_a_step_is_what_each_row_computes_for_itself(form, value_dim, band, monkeypatch):
    monkeypatch.setattr(shared_prefixes, "BAND_NUMBERS", band)
    options = LayerOptions(layer=0, scaling=0.4, **form)
    inputs = filled(3, 8, value_dim, torch.float64)
    alone, _ = decoded((), inputs, options)
    together, layout = decoded(PREFIXES, inputs, options)
    assert together.shape == alone.shape
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    (found,) = layout._sharings.values()
    shared = 0 if found is None else len(found.prefixes)
    assert shared == {None: 2, 60: 1, 20: 0, 4: 0}[form.get("window")]


def test_without_the_fused_kernel_the_products_are_written_out(monkeypatch):
    options = LayerOptions(layer=0, scaling=0.4)
    inputs = filled(3, 8, 8, torch.float64)
    fused, _ = decoded(PREFIXES, inputs, options)
    monkeypatch.setattr(shared_prefixes, "_FUSED", "not among torch's operators")
    written, _ = decoded(PREFIXES, inputs, options)
    torch.testing.assert_close(written, fused, rtol=1e-12, atol=1e-12)


def test_bfloat16_is_as_near_as_each_row_by_itself():
    options = LayerOptions(layer=0, scaling=0.4, sinks=torch.linspace(-2, 2, 6).bfloat16())
    exact, _ = decoded((), filled(3, 8, 8, torch.float64), options)
    inputs = filled(3, 8, 8, torch.bfloat16)
    for prefixes in ((), PREFIXES):
        found, _ = decoded(prefixes, inputs, options)
        assert found.dtype == torch.bfloat16
        assert (found - exact).abs().max() < 0.05


def test_what_is_short_or_whom_a_window_has_passed_is_not_worth_sharing(monkeypatch):
    monkeypatch.setattr(shared_prefixes, "WORTH_NUMBERS", 3 * 40 * 24)
    found = plan(PREFIXES, STARTS, None, 24)
    assert found is not None
    assert found.prefixes == PREFIXES[:1]
    assert plan(PREFIXES, STARTS, None, 23) is None
    assert plan(PREFIXES, STARTS, 70, 24) is None
    assert plan(PREFIXES, STARTS, 71, 24) is not None


@pytest.mark.parametrize(("band", "rows"), [(0, 8), (2000, 4), (1 << 20, 1)])
def test_neighbours_are_read_together_while_little_is_read_in_vain(band, rows, monkeypatch):
    monkeypatch.setattr(shared_prefixes, "BAND_NUMBERS", band)
    sharing = plan(PREFIXES, STARTS, None, 24)
    assert sharing is not None
    assert len(sharing.bands) == rows


def seen(sharing, row):
    """Places of the cache that a row attends to by itself."""
    (band,) = (b for b in sharing.bands if b.rows.start <= row < b.rows.stop)
    places = torch.arange(band.columns.start, band.columns.stop)
    if band.hidden is not None:
        places = places[~band.hidden[row - band.rows.start, 0, 0]]
    return places.tolist()


@pytest.mark.parametrize("window", [None, 71, 40])
def test_every_row_sees_each_place_once(window):
    sharing = plan(PREFIXES, STARTS, window, 64)
    assert sharing is not None
    shared = {row: prefix.length for prefix in sharing.prefixes for row in prefix.rows}
    for row, start in enumerate(STARTS):
        first = 0 if window is None else max(0, start + 1 - window)
        assert seen(sharing, row) == list(range(shared.get(row, first), start + 1))


class Lineage:
    """A table whose rows' tokens are followed, and what it says they share is compared."""

    def __init__(self, num_rows):
        self.table = SlotTable(SlotCache(num_rows))
        self.numbers = itertools.count()

    def admit(self, tokens):
        self.table.cache.reserve(64)  # again where everything was forgotten
        row, held = self.table.admit(object(), tokens)
        fresh = [float(next(self.numbers)) for _ in tokens[held:]]  # computed anew: no copy
        values = torch.tensor(fresh).view(1, -1, 1)
        self.table.cache.write(0, row, held, values, values)
        self.table.slots[row].tokens = list(tokens)
        return row

    def content(self, row, length):
        return self.table.cache.read(0, row, length)[0].flatten().tolist()

    def check(self):
        found = self.table.shared_prefixes()
        members = [row for prefix in found for row in prefix.rows]
        assert len(members) == len(set(members))
        for prefix in found:
            assert len(prefix.rows) > 1
            first, *others = (self.content(row, prefix.length) for row in prefix.rows)
            assert all(first == other for other in others)
        return found


def test_what_rows_share_are_copies_whatever_happens():
    for seed in range(30):
        choose = random.Random(seed)
        rows, shared = Lineage(6), 0
        for _ in range(40):
            table = rows.table
            if table.num_active < 6 and choose.random() < 0.6:
                stem = [1] * choose.choice((2, 6)) + [choose.randint(1, 2) for _ in range(4)]
                rows.admit(stem + [3] * choose.randint(1, 5))
            elif table.num_active and choose.random() < 0.9:
                table.retire(choose.randrange(table.num_active))
            elif choose.random() < 0.3:
                table.forget()
            shared += len(rows.check())
        assert shared


def test_a_group_leaves_what_everybody_shares_for_its_own_longer_prompt():
    system, table = [9] * 10, Lineage(8)
    one, other = system + [1] * 20, system + [2] * 20
    table.admit([*one, 0])
    table.admit([*other, 0])
    assert table.check() == (SharedPrefix((0, 1), 10),)
    for _ in range(2):
        table.admit([*one, 0])
        table.admit([*other, 0])
    assert table.check() == (SharedPrefix((0, 2, 4), 30), SharedPrefix((1, 3, 5), 30))


def test_one_long_beginning_for_all_is_not_given_up_for_chance_pairs():
    system, table = [9] * 30, Lineage(8)
    for end in ([1, 1, 1], [1, 1, 2], [2, 1], [2, 2], [3, 1], [3, 3]):
        table.admit(system + end)
    assert table.check() == (SharedPrefix(tuple(range(6)), 30),)


def tokens(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(32, 127, (count,), generator=generator).tolist())


@pytest.mark.parametrize("family", FAMILIES)
def test_groups_side_by_side_are_each_answer_alone(family, tmp_path, compute, monkeypatch):
    """Several turns, mixed lengths, two adapters: log-probabilities of the model's own forward."""
    shared = []
    monkeypatch.setattr(
        "training_gym.engines.local.slot_layout.attend_sharing",
        lambda *inputs: shared.append(1) or shared_prefixes.attend_sharing(*inputs),
    )
    folder = tiny_model(tmp_path, family)
    model = sharp_model(folder)
    network = Network(model)
    sampler = LocalSampler(
        network, load_codec(folder), compute, slots=7, max_sequence_tokens=160, deterministic=False
    )

    async def episode(task, member, prompt):
        answers = []
        for turn in range(2):
            limit = 2 + 3 * (member + turn)
            sampling = Sampling(max_tokens=limit, temperature=member % 2)
            key = SampleKey(seed=1, task=task, member=member, turn=turn)
            answer = await sampler.generate(Prompt(token_ids=prompt), sampling, key, session=None)
            answers.append((prompt, member % 2, answer))
            prompt = prompt + answer.token_ids + tokens(3, turn)
        return answers

    async def together():
        groups = {"short": tokens(9, 1), "long": tokens(50, 2), "longer": tokens(40, 2)}
        return await asyncio.gather(
            *(episode(task, m, prompt) for task, prompt in groups.items() for m in range(4))
        )

    for prompt, temperature, answer in itertools.chain(*asyncio.run(together())):
        scores = own_logprobs(model, prompt + answer.token_ids[:-1])[len(prompt) - 1 :]
        if temperature:
            chosen = scores.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
            assert answer.logprobs == pytest.approx(chosen.tolist(), abs=1e-5)
        else:
            check_greedy(scores, answer.token_ids)
    assert shared


def check_greedy(scores, ids):
    for (best, second), chosen, token in zip(
        scores.topk(2).values, scores.argmax(-1), ids, strict=True
    ):
        if best - second > 1e-4:
            assert chosen == token


def test_rows_of_two_adapters_share_nothing(tmp_path, compute):
    folder = tiny_model(tmp_path)
    network = Network(sharp_model(folder, adapter=Lora(rank=4)))
    sampler = LocalSampler(
        network, load_codec(folder), compute, slots=6, max_sequence_tokens=160, deterministic=False
    )
    found = []
    next_logits = network.next_logits
    network.next_logits = lambda *inputs: found.append(inputs[2]) or next_logits(*inputs)

    async def together():
        sampling = Sampling(max_tokens=4, min_tokens=4)
        return await asyncio.gather(
            *(
                sampler.generate(
                    Prompt(token_ids=tokens(20, 0)),
                    sampling,
                    SampleKey(seed=1, task="t", member=member),
                    adapter=("base", None)[member % 2],
                )
                for member in range(6)
            )
        )

    asyncio.run(together())
    for layout in found:
        for prefix in layout.prefixes:
            assert len({layout.adapters[row] for row in prefix.rows}) == 1
    assert max(len(layout.prefixes) for layout in found) == 2
