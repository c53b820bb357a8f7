import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training_gym.engines.local.attention import PackedLayout, Segment
from training_gym.engines.local.head import LossParts, chunked_backward, chunked_logprobs
from training_gym.engines.local.packing import Row, micro_batches, pack
from training_gym.spec.episodes import PROMPT, SAMPLED, TOOL, Trajectory

CPU = torch.device("cpu")


def trajectory(prompt, answer, mask=None):
    length = len(prompt) + len(answer)
    flags = [PROMPT] * len(prompt) + [SAMPLED] * len(answer)
    for place in mask or ():
        flags[len(prompt) + place] = TOOL
    return Trajectory(
        token_ids=(*prompt, *answer),
        flags=tuple(flags),
        logprobs=tuple(-0.1 * place for place in range(length)),
        versions=(0,) * length,
        prompt_length=len(prompt),
    )


def rows_of(*trajectories):
    return [
        Row(t, [0.5 * place for place in range(len(t.token_ids))], [1.0] * len(t.token_ids))
        for t in trajectories
    ]


def random_rows(seed, groups=((9, 5, 3), (4, 8, 1, 6), (1, 2, 2))):
    """Groups given as prompt length and answer lengths."""
    generator = torch.Generator().manual_seed(seed)

    def some(length):
        return torch.randint(32, 127, (length,), generator=generator).tolist()

    found = []
    for prompt_length, *answers in groups:
        prompt = some(prompt_length)
        found += [trajectory(prompt, some(n), mask=[1] if n > 4 else None) for n in answers]
    return rows_of(*found)


def weighted(micro, logprobs, part):
    return (logprobs * micro.advantages[part] * micro.weights[part]).sum()


def in_chunks(micro):
    return LossParts(by_chunk=lambda chunk: weighted(micro, chunk.logprobs, chunk.part))


def all_at_once(micro):
    return LossParts(joint=lambda logprobs: weighted(micro, logprobs, slice(None)))


def gradients(network, batches, chunk=7, parts=in_chunks):
    network.model.zero_grad(set_to_none=True)
    logprobs = {}
    for micro in batches:
        hidden = network.hidden(micro.ids, micro.positions, micro.layout)
        _, found = chunked_backward(
            network,
            hidden.index_select(0, micro.sources),
            micro.targets,
            parts(micro),
            temperature=1.0,
            chunk=chunk,
        )
        for row, value in zip(micro.rows.tolist(), found.tolist(), strict=True):
            logprobs.setdefault(row, []).append(value)
    return logprobs, {name: p.grad.clone() for name, p in network.trainable()}


def reference(network, rows):
    """The model's own forward, one row at a time."""
    network.model.zero_grad(set_to_none=True)
    model = network._causal_lm
    model.set_attn_implementation("eager")
    logprobs = {}
    for number, row in enumerate(rows):
        ids = torch.tensor([row.trajectory.token_ids])
        scores = model(input_ids=ids, use_cache=False).logits[0, :-1].log_softmax(-1)
        chosen = scores.gather(1, ids[0, 1:, None]).squeeze(1)
        mask = torch.tensor(row.trajectory.loss_mask[1:])
        (chosen * mask * torch.tensor(row.advantages[1:])).sum().backward()
        logprobs[number] = chosen[mask].tolist()
    model.set_attn_implementation("training_gym")
    return logprobs, {name: p.grad.clone() for name, p in network.trainable()}


def with_system_prompt(rows, length=20):
    """The same rows behind a common start."""
    start = tuple(range(40, 40 + length))
    return rows_of(
        *(
            trajectory(
                start + r.trajectory.token_ids[: r.trajectory.prompt_length],
                r.trajectory.token_ids[r.trajectory.prompt_length :],
            )
            for r in rows
        )
    )


@pytest.mark.parametrize("token_budget", [8, 24, 64, 10_000])
@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("parts", [in_chunks, all_at_once])
def test_packing_with_shared_prompts_gives_the_plain_gradients(
    network, token_budget, common, parts
):
    rows = with_system_prompt(random_rows(3)) if common else random_rows(3)
    logprobs, ours = gradients(network, micro_batches(rows, token_budget, CPU), parts=parts)
    expected_logprobs, expected = reference(network, rows)
    for number, values in expected_logprobs.items():
        assert logprobs[number] == pytest.approx(values, abs=1e-4)
    for name, gradient in expected.items():
        scale = gradient.abs().max()
        assert torch.allclose(ours[name] / scale, gradient / scale, atol=2e-5), name


def test_a_prompt_is_laid_once_and_every_target_keeps_its_numbers():
    rows = rows_of(trajectory([1, 2, 3], [4, 5]), trajectory([1, 2, 3], [6]))
    micro = pack(list(enumerate(rows)), CPU)
    assert micro.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert micro.positions.tolist() == [0, 1, 2, 3, 4, 3]
    assert micro.sources.tolist() == [2, 3, 2]
    assert micro.targets.tolist() == [4, 5, 6]
    assert micro.advantages.tolist() == [1.5, 2.0, 1.5]
    assert micro.sampler_logprobs.tolist() == pytest.approx([-0.3, -0.4, -0.3])
    assert micro.rows.tolist() == [0, 0, 1]


def test_what_all_prompts_begin_with_is_laid_once():
    start = list(range(10, 20))
    rows = rows_of(trajectory([*start, 1], [4, 5]), trajectory([*start, 2, 3], [6]))
    micro = pack(list(enumerate(rows)), CPU)
    assert micro.ids.tolist() == [*start, 1, 4, 5, 2, 3, 6]
    assert micro.positions.tolist() == [*range(10), 10, 11, 12, 10, 11, 12]
    assert micro.sources.tolist() == [10, 11, 14]
    assert [(s.start, s.length, s.prefix) for s in micro.layout.segments] == [
        (0, 10, ()),
        (10, 3, (0,)),
        (13, 3, (0,)),
    ]


@given(
    st.lists(
        st.lists(st.integers(1, 30), min_size=2, max_size=6),
        min_size=1,
        max_size=5,
    ),
    st.integers(8, 64),
)
def test_every_row_is_packed_once_and_the_budget_holds(groups, token_budget):
    rows = random_rows(0, groups)
    seen = []
    for micro in micro_batches(rows, token_budget, CPU):
        in_batch = set(micro.rows.tolist())
        seen += sorted(in_batch)
        assert micro.num_tokens <= token_budget or len(in_batch) == 1
    assert sorted(seen) == list(range(len(rows)))


def test_chunking_does_not_change_logprobs(network):
    torch.manual_seed(0)
    hidden = torch.randn(23, network.model.config.hidden_size)
    targets = torch.randint(0, network.vocab_size, (23,))
    with torch.no_grad():
        logits = network.logits(hidden) / 0.7
    whole = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    for chunk in (1, 5, 100):
        parts = chunked_logprobs(network, hidden, targets, temperature=0.7, chunk=chunk)
        assert torch.allclose(parts, whole, atol=1e-5)


def test_neighbours_of_equal_length_are_computed_as_one_batch_and_as_each_alone(network):
    """Two prompts alike, three answers alike behind the second, and one that differs."""
    layout = PackedLayout(
        (
            Segment(0, 6),
            Segment(6, 6),
            *(Segment(start, 5, (6,), 6) for start in (12, 17, 22)),
            Segment(27, 4, (6,), 6),
        )
    )
    assert [len(alike) for alike in layout._alike] == [2, 3, 1]
    ids = torch.randint(32, 127, (31,), generator=torch.Generator().manual_seed(1))
    places = [*range(6), *range(6), *(list(range(6, 11)) * 3), *range(6, 10)]
    with torch.no_grad():
        found = network.hidden(ids, torch.tensor(places), layout)
        for segment in layout.segments:
            before = ids[6:12] if segment.prefix else ids[:0]
            alone = torch.cat([before, ids[segment.start : segment.start + segment.length]])
            expected = network.hidden(
                alone, torch.arange(len(alone)), PackedLayout((Segment(0, len(alone)),))
            )[len(before) :]
            part = found[segment.start : segment.start + segment.length]
            torch.testing.assert_close(part, expected, rtol=1e-5, atol=1e-5)
