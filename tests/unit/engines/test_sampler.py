import asyncio

import pytest
import torch

from training_gym.engines.local.sampler import LocalSampler
from training_gym.spec.errors import EngineError
from training_gym.spec.sampling import Prompt, SampleKey, Sampling, WeightUpdate

SHORT = Sampling(max_tokens=16)


def prompt(length, seed=0):
    generator = torch.Generator().manual_seed(seed * 1000 + length)
    return tuple(torch.randint(32, 127, (length,), generator=generator).tolist())


@pytest.fixture
def sampler(network, codec, compute):
    return LocalSampler(network, codec, compute, slots=4, max_sequence_tokens=120)


def ask(sampler, token_ids, task="t", sampling=SHORT, **key):
    key = SampleKey(seed=1, task=task, **key)
    return sampler.generate(Prompt(token_ids=token_ids), sampling, key)


async def gather(*requests):
    return await asyncio.gather(*requests)


PROMPTS = [prompt(n) for n in (7, 20, 40, 1, 33, 2)] + [prompt(12)] * 4


def test_in_a_batch_equals_alone(network, codec, compute):
    """Mixed lengths, shared prompts, more requests than rows: each as if it were alone."""

    def sample(slots, prompts):
        async def go():
            made = LocalSampler(network, codec, compute, slots=slots, max_sequence_tokens=120)
            return await gather(*(ask(made, p, task=f"{t}") for t, p in prompts))

        return asyncio.run(go())

    numbered = list(enumerate(PROMPTS))
    together = sample(3, numbered)
    for number, completion in numbered:
        (alone,) = sample(1, [(number, completion)])
        assert together[number].token_ids == alone.token_ids
        assert together[number].logprobs == pytest.approx(alone.logprobs, abs=1e-5)
    assert len({completion.token_ids for completion in together}) > 6


def test_greedy_equals_transformers_generate(network, codec, sampler):
    greedy = Sampling(max_tokens=12, temperature=0)
    found = asyncio.run(gather(*(ask(sampler, p, sampling=greedy) for p in PROMPTS[:4])))
    for token_ids, completion in zip(PROMPTS[:4], found, strict=True):
        ids, expected = torch.tensor([token_ids]), []
        for _ in completion.token_ids:
            network._causal_lm.set_attn_implementation("eager")
            with torch.no_grad():
                logits = network._causal_lm(input_ids=ids, use_cache=False).logits[0, -1]
            network._causal_lm.set_attn_implementation("training_gym")
            expected.append(logits.argmax().item())
            ids = torch.cat([ids, torch.tensor([[expected[-1]]])], dim=1)
        assert list(completion.token_ids) == expected


def test_logprobs_are_those_of_a_full_forward(sampler):
    completions = asyncio.run(gather(*(ask(sampler, p) for p in PROMPTS)))
    sequences = [p + c.token_ids for p, c in zip(PROMPTS, completions, strict=True)]
    scored = asyncio.run(sampler.score(sequences))
    for token_ids, completion, scores in zip(PROMPTS, completions, scored, strict=True):
        assert completion.logprobs == pytest.approx(scores[len(token_ids) :], abs=1e-4)
        assert len(completion.versions) == len(completion.token_ids)


def test_a_group_is_prefilled_once(network, codec, compute):
    async def go():
        made = LocalSampler(network, codec, compute, slots=8, max_sequence_tokens=120)
        await gather(*(ask(made, prompt(50), member=member) for member in range(8)))
        return made.statistics.prefilled_tokens

    assert asyncio.run(go()) == 49  # the last token is each member's first decoding step


def test_a_second_turn_computes_only_what_is_new(sampler):
    async def go():
        first = await ask(sampler, prompt(30))
        longer = prompt(30) + first.token_ids + prompt(5, seed=1)
        second = await ask(sampler, longer, turn=1)
        return first, second

    first, second = asyncio.run(go())
    # The last sampled token was never fed to the network, so it counts as new.
    assert second.prefilled == 6
    assert first.prefilled == 30


def test_new_weights_forget_what_was_cached(sampler, network):
    async def go():
        before = await ask(sampler, prompt(30))
        with torch.no_grad():
            network.model.get_input_embeddings().weight.mul_(1.5)
        await sampler.update_weights(WeightUpdate(version=1, base_version=0))
        after = await ask(sampler, prompt(30))
        return before, after

    before, after = asyncio.run(go())
    assert after.prefilled == 30
    assert set(before.versions) == {0}
    assert set(after.versions) == {1}
    assert after.logprobs != before.logprobs


def test_after_forgetting_a_request_is_computed_as_in_a_new_process(sampler):
    async def go():
        new, warm = await ask(sampler, prompt(30)), await ask(sampler, prompt(30))
        await sampler.forget()
        return new, warm, await ask(sampler, prompt(30))

    new, warm, forgotten = asyncio.run(go())
    assert (new.prefilled, warm.prefilled) == (30, 1)
    assert forgotten == new


def test_different_draws_of_one_prompt_differ(sampler):
    same = asyncio.run(gather(*(ask(sampler, prompt(9)) for _ in range(2))))
    assert same[0].token_ids == same[1].token_ids
    variants = [{"member": 1}, {"turn": 1}, {"visit": 1}, {"stream": "eval"}, {"task": "u"}]
    others = asyncio.run(gather(*(ask(sampler, prompt(9), **variant) for variant in variants)))
    assert len({same[0].token_ids, *(other.token_ids for other in others)}) == 6


def test_stop_token_stop_text_length_and_context(sampler, codec):
    stop = next(iter(codec.stop_ids))

    async def until(sampling, token_ids=PROMPTS[0]):
        return await ask(sampler, token_ids, sampling=sampling)

    free = asyncio.run(until(Sampling(max_tokens=40, temperature=2.0)))
    text = codec.decode(free.token_ids[4:6])
    stopped = asyncio.run(until(Sampling(max_tokens=40, temperature=2.0, stop=(text,))))
    assert stopped.stop_reason == "stop"
    assert text in codec.decode(stopped.token_ids)
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert asyncio.run(until(Sampling(max_tokens=3))).stop_reason in ("length", "stop")
    full = asyncio.run(until(Sampling(max_tokens=500, min_tokens=500), prompt(100)))
    assert (full.stop_reason, len(full.token_ids)) == ("context", 20)
    assert stop not in full.token_ids  # min_tokens forbids it
    assert asyncio.run(until(SHORT, prompt(120))).token_ids == ()


def test_cancelling_frees_the_row_and_harms_nobody(sampler):
    async def go():
        doomed = [
            asyncio.create_task(ask(sampler, prompt(5), sampling=Sampling(max_tokens=100)))
            for _ in range(4)
        ]
        waiting = asyncio.create_task(ask(sampler, prompt(6)))
        await asyncio.sleep(0.02)
        for task in doomed:
            task.cancel()
        found = await asyncio.wait_for(waiting, 20)
        await asyncio.gather(*doomed, return_exceptions=True)
        return found, await ask(sampler, prompt(6))

    found, again = asyncio.run(go())
    assert found.token_ids == again.token_ids


def test_what_cannot_be_sampled_is_refused(sampler):
    with pytest.raises(EngineError, match="no tokens"):
        asyncio.run(ask(sampler, ()))
    with pytest.raises(EngineError, match="max_tokens"):
        asyncio.run(ask(sampler, prompt(3), sampling=Sampling()))


def test_a_failing_network_fails_the_requests_and_not_the_sampler(sampler, network, monkeypatch):
    async def go():
        with monkeypatch.context() as broken:
            broken.setattr(network, "next_logits", lambda *inputs: 1 / 0)
            results = await asyncio.gather(
                *(ask(sampler, prompt(4)) for _ in range(6)), return_exceptions=True
            )
        return results, await ask(sampler, prompt(4))

    results, after = asyncio.run(go())
    assert all(isinstance(result, ZeroDivisionError) for result in results)
    assert after.token_ids


def test_deterministic_steps_wait_for_every_episode_in_play(sampler):
    """The slow episode's request joins the same steps as the fast one's, whatever the clock."""
    joined = []

    async def episode(name, delay):
        async with sampler.presence(name):
            await asyncio.sleep(delay)
            key = SampleKey(seed=1, task=name)
            await sampler.generate(Prompt(token_ids=prompt(8)), SHORT, key, session=name)
            joined.append(sampler.statistics.steps)

    asyncio.run(gather(episode("a", 0.0), episode("b", 0.1)))
    assert sampler.statistics.steps <= 16


async def drawn_until(sampler, count):
    while sampler.statistics.steps < count:
        await asyncio.sleep(0.001)


@pytest.fixture
def free_sampler(network, codec, compute):
    """One that does not wait for episodes in play."""
    return LocalSampler(
        network, codec, compute, slots=4, max_sequence_tokens=200, deterministic=False
    )


def test_answers_go_on_when_the_weights_change_under_them(free_sampler, network, compute):
    """They keep what they have computed; every token tells which weights drew it."""
    long = Sampling(max_tokens=60, min_tokens=60)

    def change():
        with torch.no_grad():
            network.model.get_input_embeddings().weight.mul_(1.2)
        free_sampler.take_up(1)

    async def go():
        open_answer = asyncio.ensure_future(ask(free_sampler, prompt(30), sampling=long))
        await drawn_until(free_sampler, 10)
        await compute.run(change)
        prefilled = free_sampler.statistics.prefilled_tokens
        # The same prompt anew: nothing of the old weights may be in it.
        other = await ask(free_sampler, prompt(30), task="other")
        computed = free_sampler.statistics.prefilled_tokens - prefilled
        return await open_answer, other, computed

    completion, other, computed = asyncio.run(go())
    assert list(completion.versions) == sorted(completion.versions)
    assert set(completion.versions) == {0, 1}
    assert completion.versions.count(0) >= 10
    assert set(other.versions) == {1}
    assert (other.prefilled, computed) == (30, 29)
    (scores,) = asyncio.run(free_sampler.score([prompt(30) + other.token_ids]))
    assert other.logprobs == pytest.approx(scores[30:], abs=1e-4)


def test_what_an_outdated_answer_leaves_serves_nobody(free_sampler, compute):
    async def go():
        answer = asyncio.ensure_future(ask(free_sampler, prompt(30)))
        await drawn_until(free_sampler, 3)
        await compute.run(free_sampler.take_up, 1)
        first = await answer
        return first, await ask(free_sampler, prompt(30) + first.token_ids, turn=1)

    first, second = asyncio.run(go())
    assert second.prefilled == 30 + len(first.token_ids)


def test_several_tokens_are_drawn_a_hand_over_where_the_clock_may_decide(free_sampler, compute):
    handed = []
    run = compute.run

    async def counted(function, *args, **kwargs):
        handed.append(function)
        return await run(function, *args, **kwargs)

    compute.run = counted
    found = asyncio.run(gather(*(ask(free_sampler, prompt(n), task=f"{n}") for n in range(3, 9))))
    drawn = free_sampler.statistics.steps
    assert all(completion.token_ids for completion in found)
    assert len(handed) < drawn
