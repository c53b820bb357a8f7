import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.planning.known import H200, LAPTOP, QWEN3_8B, SMOLLM2_135M, haiku

from training_gym.planning import make_plan, origins_of
from training_gym.spec.algorithms import SFT
from training_gym.spec.errors import PlanError
from training_gym.spec.plan import Architecture, Machine, Plan
from training_gym.spec.recipe import Lora
from training_gym.spec.run import RunSpec


def planned(
    run: RunSpec, architecture: Architecture = SMOLLM2_135M, machine: Machine = LAPTOP, **known: int
) -> Plan:
    return make_plan(run, architecture, machine, origins_of(run), **known)


def test_every_open_choice_is_decided_and_attributed_to_the_planner() -> None:
    plan = planned(haiku())
    engine = plan.run.recipe.engine
    open_before = ("device", "dtype", "threads", "slots", "token_budget")
    assert None not in [getattr(engine, name) for name in open_before]
    assert "auto" not in [getattr(engine, name) for name in open_before]
    assert (engine.device, engine.dtype, engine.threads) == ("cpu", "float32", 4)
    for name in open_before:
        assert plan.origins[f"recipe.engine.{name}"] == "planner"
    assert plan.origins["recipe.max_prompt_tokens"] == "planner"
    assert plan.origins["recipe.num_steps"] == "user"
    assert plan.run.recipe.max_prompt_tokens == plan.max_sequence_tokens - 48


def test_what_the_user_set_is_kept() -> None:
    run = haiku(max_prompt_tokens=100, engine={"slots": 5, "token_budget": 777, "threads": 1})
    plan = planned(run)
    assert (plan.slots, plan.token_budget, plan.max_sequence_tokens) == (5, 777, 148)
    assert plan.run.recipe.engine.threads == 1
    assert plan.origins["recipe.engine.slots"] == "user"


def test_a_known_longest_prompt_bounds_the_sequences() -> None:
    assert planned(haiku(), longest_prompt_tokens=70).max_sequence_tokens == 70 + 48
    assert planned(haiku()).max_sequence_tokens > 1024


def test_all_episodes_of_a_batch_are_sampled_at_once_where_they_fit() -> None:
    assert planned(haiku(), longest_prompt_tokens=70).slots == 4 * 8
    assert planned(haiku(algorithm=SFT(), group_size=1)).slots == 1


def test_an_environment_gets_room_for_its_turns() -> None:
    run = haiku(max_turns=4).changed(environment="envs:Guess")
    assert planned(run, longest_prompt_tokens=100).max_sequence_tokens == 100 + 4 * 2 * 48


def test_an_evaluation_that_answers_longer_counts() -> None:
    held_out = {"name": "long", "dataset": ["x"], "sampling": {"max_tokens": 200}}
    run = haiku().changed(evals=[held_out])
    assert planned(run, longest_prompt_tokens=70).max_sequence_tokens == 270


def test_what_was_given_up_is_noted() -> None:
    run = haiku(prompts_per_batch=64)
    plan = planned(run, machine=Machine(cpu_cores=2, memory_gib=5))
    assert any("sequences are limited to" in note for note in plan.notes)
    assert planned(haiku(), longest_prompt_tokens=70).notes == ()


def test_a_prompt_and_answer_beyond_the_context_are_refused() -> None:
    with pytest.raises(PlanError) as refused:
        planned(haiku(max_prompt_tokens=8000, max_response_tokens=500))
    assert "8000 + max_response_tokens 500 = 8500" in refused.value.message
    assert refused.value.fix == "lower max_prompt_tokens to 7692"
    with pytest.raises(PlanError, match="max_response_tokens = 9000"):
        planned(haiku(max_response_tokens=9000))


def test_what_cannot_fit_is_refused_with_the_nearest_that_can() -> None:
    gpu = H200.changed(accelerator_memory_gib=80)
    with pytest.raises(PlanError) as refused:
        planned(haiku(), QWEN3_8B, gpu)
    assert "optimizer: 61.0" in refused.value.message
    assert "73.6 GiB can be used" in refused.value.message
    assert "adapter=Lora()" in refused.value.fix
    planned(haiku(adapter=Lora()), QWEN3_8B, gpu)


def test_a_choice_of_the_users_that_does_not_fit_is_handed_back() -> None:
    with pytest.raises(PlanError) as refused:
        planned(haiku(engine={"token_budget": 60000}))
    assert refused.value.fix == "leave token_budget to the planner"


def test_where_nothing_helps_the_machine_that_would_is_named() -> None:
    with pytest.raises(PlanError, match="take a machine with"):
        planned(haiku(), QWEN3_8B, Machine(cpu_cores=2, memory_gib=4))


machines = st.builds(
    Machine,
    cpu_cores=st.integers(1, 64),
    memory_gib=st.floats(1, 512),
    accelerators=st.integers(0, 1),
    accelerator_memory_gib=st.sampled_from([0.0, 16.0, 80.0, 141.0]),
)
recipes = st.fixed_dictionaries(
    {
        "prompts_per_batch": st.integers(1, 64),
        "group_size": st.integers(2, 32),
        "max_response_tokens": st.integers(1, 4096),
        "max_prompt_tokens": st.none() | st.integers(1, 4096),
        "adapter": st.none() | st.just(Lora()),
        "engine": st.fixed_dictionaries(
            {
                "slots": st.none() | st.integers(1, 128),
                "token_budget": st.none() | st.integers(64, 32768),
            }
        ),
    }
)


@settings(max_examples=settings.default.max_examples // 2)
@given(
    recipes, machines, st.sampled_from([SMOLLM2_135M, QWEN3_8B]), st.none() | st.integers(1, 999)
)
def test_a_plan_fits_and_survives_json_or_the_refusal_says_what_to_do(
    recipe: dict, machine: Machine, architecture: Architecture, longest: int | None
) -> None:
    run = haiku(**recipe)
    try:
        plan = make_plan(run, architecture, machine, origins_of(run), longest_prompt_tokens=longest)
    except PlanError as refused:
        event("refused")
        fix = refused.fix
    else:
        event("planned")
        assert plan.memory.total_gib <= plan.memory.available_gib
        assert plan.max_sequence_tokens <= architecture.max_context_tokens
        assert Plan.read_json(plan.model_dump_json()) == plan
        assert set(plan.origins) >= set(origins_of(run))
        fix = "none needed"
    assert fix
