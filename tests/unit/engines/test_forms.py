"""Answers held to a form: what is drawn, what is recorded of it, what is trained."""

import asyncio
import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.engines.test_improvement import Workbench

from training_gym.engines.local.grammars import Matcher
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.vllm.sampler import VllmSampler
from training_gym.environments.single_turn import SingleTurn
from training_gym.rollouts.policy import SampledPolicy
from training_gym.rollouts.record import TokenRecord
from training_gym.spec.algorithms import GRPO
from training_gym.spec.episodes import FORCED, SAMPLED, Score
from training_gym.spec.errors import EngineError, FormError
from training_gym.spec.forms import AnswerForm, Grammar
from training_gym.spec.messages import user
from training_gym.spec.recipe import Recipe
from training_gym.spec.sampling import Prompt, SampleKey, Sampling
from training_gym.spec.tasks import Task

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

NUMBER = json.dumps(
    {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "of": {"enum": ["cats", "dogs", "both"]}},
        "required": ["n", "of"],
        "additionalProperties": False,
    }
)


def held(codec, schema=NUMBER, **sampling):
    grammar = codec.grammar(AnswerForm(content_schema=schema), raw=True)
    return Sampling(**{"max_tokens": 60, "form": grammar, **sampling})


def ask(sampler, text, sampling, task="t"):
    prompt = Prompt(token_ids=tuple(text.encode()))
    return sampler.generate(prompt, sampling, SampleKey(seed=1, task=task))


def made(network, codec, compute, slots=4):
    return LocalSampler(network, codec, compute, slots=slots, max_sequence_tokens=240)


def together(sampler, *requests):
    async def go():
        return await asyncio.gather(*requests)

    return asyncio.run(go())


def test_held_and_free_requests_in_a_batch_equal_each_alone(network, codec, compute):
    """Greedy, truncated and tempered; more requests than rows, and one prompt for several."""
    free = Sampling(max_tokens=20)
    asked = [("How many?", held(codec)), ("How many?", free), ("Say:", held(codec, top_k=5))]
    asked += [("Greedy:", held(codec, temperature=0)), ("Warm:", held(codec, temperature=1.7))]
    asked += [("How many?", held(codec, top_p=0.8)), ("Say:", free)]
    numbered = list(enumerate(asked))

    def sample(slots, some):
        sampler = made(network, codec, compute, slots)
        return together(sampler, *(ask(sampler, t, s, task=f"{n}") for n, (t, s) in some))

    for number, found in enumerate(sample(3, numbered)):
        (alone,) = sample(1, [numbered[number]])
        assert found.token_ids == alone.token_ids
        assert found.forced == alone.forced
        assert found.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
        if asked[number][1].form is not None and found.stop_reason == "stop":
            jsonschema.validate(json.loads(codec.decode(found.token_ids[:-1])), json.loads(NUMBER))


def test_what_is_recorded_is_the_policy_without_the_form(network, codec, compute):
    sampler = made(network, codec, compute)
    (found,) = together(sampler, ask(sampler, "How many?", held(codec)))
    ids = (*b"How many?", *found.token_ids)
    (scores,) = asyncio.run(sampler.score([ids]))
    assert found.logprobs == pytest.approx(scores[-len(found.token_ids) :], abs=1e-4)
    text = codec.decode(found.token_ids)
    assert text.startswith('{"n": ')
    forced = dict(zip(text, found.forced, strict=False))  # of each character, its last place
    assert found.forced[:6] == (True,) * 6  # the model could say nothing else
    assert found.forced[6] is False  # a digit, or a sign
    assert forced["{"]
    assert found.forced[-1] == (found.stop_reason == "stop")


def test_an_answer_that_is_cut_off_says_so(network, codec, compute):
    sampler = made(network, codec, compute)
    cut, whole = together(
        sampler,
        ask(sampler, "How many?", held(codec, max_tokens=7)),
        ask(sampler, "How many?", held(codec, schema='{"const": [1, "é"]}')),
    )
    assert (cut.stop_reason, len(cut.token_ids)) == ("length", 7)
    assert whole.stop_reason == "stop"
    assert codec.decode(whole.token_ids[:-1]) == '[1, "é"]'
    assert all(whole.forced)


@pytest.mark.parametrize(
    ("sampling", "reason"),
    [
        (Sampling(max_tokens=9, form=Grammar(lark="start: nothing")), "cannot be held"),
        (Sampling(max_tokens=9, form=AnswerForm()), "takes a grammar"),
        (Sampling(max_tokens=9, form=Grammar(lark='start: "a"'), min_tokens=3), "min_tokens"),
    ],
)
def test_what_cannot_be_held_is_refused(network, codec, compute, sampling, reason):
    sampler = made(network, codec, compute)
    with pytest.raises(FormError, match=reason):
        together(sampler, ask(sampler, "x", sampling))


def test_without_the_library_the_extra_is_named(network, codec, compute, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    sampler = made(network, codec, compute)
    with pytest.raises(EngineError, match="needs llguidance") as caught:
        together(sampler, ask(sampler, "x", held(codec)))
    assert "training-gym[structured]" in caught.value.fix


def test_vllm_refuses_before_it_is_asked(network, codec, compute):
    sampler = VllmSampler(None, network, codec, compute, max_sequence_tokens=99)
    with pytest.raises(FormError, match="vLLM in this process"):
        together(sampler, ask(sampler, "x", held(codec)))


def test_a_form_that_goes_no_further_ends_its_own_request_alone(
    network, codec, compute, monkeypatch
):
    followed = Matcher.allowed

    def intricate(matcher):
        matcher.steps = getattr(matcher, "steps", 0) + 1
        if matcher.steps == 3:
            raise EngineError("a form could not be followed", fix="take another")
        return followed(matcher)

    monkeypatch.setattr(Matcher, "allowed", intricate)

    async def go():
        sampler = made(network, codec, compute)
        asked = ask(sampler, "x", held(codec)), ask(sampler, "y", Sampling(max_tokens=9))
        return await asyncio.gather(*asked, return_exceptions=True)

    broken, free = asyncio.run(go())
    assert isinstance(broken, EngineError)
    assert len(free.token_ids) > 0


LEAVES = st.sampled_from(
    (
        {"type": "integer"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "string", "maxLength": 9},
        {"type": "string", "pattern": "^[a-f]{2,4}$"},
        {"enum": ["a", 'quoted "b"', "ü", 3, None]},
        {"const": {"k": [1, 2]}},
    )
)


def objects(inner):
    fields = st.dictionaries(st.sampled_from(("a", "b c", "é", '"')), inner, max_size=3)
    return fields.map(
        lambda found: {
            "type": "object",
            "properties": found,
            "required": list(found)[:2],
            "additionalProperties": False,
        }
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner),
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
    ),
    max_leaves=5,
)


@settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schema=SCHEMAS, temperature=st.sampled_from((0.7, 1.0, 3.0)))
def test_whatever_the_schema_the_answer_follows_it(network, codec, compute, schema, temperature):
    sampler = made(network, codec, compute)
    sampling = held(codec, json.dumps(schema), temperature=temperature, max_tokens=160)
    (found,) = together(sampler, ask(sampler, "Answer:", sampling))
    if found.stop_reason == "stop":
        jsonschema.validate(json.loads(codec.decode(found.token_ids[:-1])), schema)
    else:
        assert len(found.token_ids) >= 160  # digits for ever, at most


def test_a_policy_records_that_an_answer_was_held(network, codec, compute):
    async def go():
        record = TokenRecord(codec)
        sampler, key = made(network, codec, compute), SampleKey(seed=1, task="t")
        own = Sampling(max_tokens=60)
        policy = SampledPolicy(sampler, codec, record, key, own, session="s")
        form = AnswerForm(content_schema='{"const": {"yes": true}}')
        await policy.complete("One: ")
        await policy.complete("Two: ", sampling=Sampling(form=form))
        return record

    record = asyncio.run(go())
    assert [each.constrained for each in record.fidelity] == [False, True]
    free, forced = record.trajectories()
    assert free.num_sampled > 0
    assert forced.num_sampled == 0
    assert set(forced.flags[forced.prompt_length : -1]) == {SAMPLED | FORCED}
    assert forced.trained is None


async def more_cats(episodes):
    return [e.changed(score=Score(value=float("cats" in e.completion))) for e in episodes]


def test_training_on_held_answers_keeps_sampler_and_trainer_together(tiny_folder, compute):
    bench = Workbench(tiny_folder, compute)
    schema = json.loads(NUMBER)
    schema["properties"]["n"] = {"enum": [1, 2, 30]}
    recipe = Recipe(
        algorithm=GRPO(),
        num_steps=4,
        prompts_per_batch=2,
        group_size=8,
        max_response_tokens=40,
        sampling=Sampling(form=AnswerForm(content_schema=json.dumps(schema))),
    )
    tasks = [Task(id=w, prompt=f"{w}: ", split_key=w) for w in ("say", "tell")]
    history = bench.reinforce(recipe, tasks, SingleTurn(), more_cats)
    assert any("mismatch_max" in metrics for metrics in history)
    assert max(m["mismatch_max"] for m in history if "mismatch_max" in m) < 1e-4


def test_a_batch_in_which_nothing_was_chosen_is_no_error(tiny_folder, compute):
    bench = Workbench(tiny_folder, compute)
    recipe = Recipe(
        algorithm=GRPO(),
        num_steps=1,
        prompts_per_batch=1,
        group_size=2,
        max_response_tokens=40,
        sampling=Sampling(form=AnswerForm(content_schema='{"const": 7}')),
    )

    async def judged(episodes):
        return [e.changed(score=Score(value=float(e.member))) for e in episodes]

    tasks = [Task(id="t", prompt="say: ", split_key="t")]
    history = bench.reinforce(recipe, tasks, SingleTurn(), judged)
    assert len(history) == 1


def test_chat_answers_of_the_tiny_model_parse(network, codec, compute):
    """The template knows reasoning: what is not thought follows the schema."""

    async def go():
        sampler = made(network, codec, compute)
        own = Sampling(max_tokens=120)
        form = AnswerForm(content_schema=NUMBER)
        policies = [
            SampledPolicy(
                sampler,
                codec,
                TokenRecord(codec),
                SampleKey(seed=1, task=f"{n}"),
                own,
                session=f"{n}",
            )
            for n in range(8)
        ]
        asked = (
            policy.sample([user("How many?")], sampling=Sampling(form=form)) for policy in policies
        )
        return await asyncio.gather(*asked)

    ended = [s for s in asyncio.run(go()) if s.completion.stop_reason == "stop"]
    assert ended
    for sample in ended:
        jsonschema.validate(json.loads(sample.message.text), json.loads(NUMBER))
