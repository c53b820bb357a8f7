"""What a definition asks of its machine that is not there, and what nothing could use."""

import pytest
from tests.unit.planning.known import H200, LAPTOP, QWEN3_8B, SMOLLM2_135M, haiku

from training_gym.planning import make_plan, origins_of
from training_gym.planning.demands import most_at_once
from training_gym.spec.algorithms import SFT
from training_gym.spec.errors import PlanError
from training_gym.spec.plan import Machine, Plan
from training_gym.spec.recipe import Lora
from training_gym.spec.run import RunSpec

MAC = Machine(
    cpu_cores=8,
    memory_gib=32,
    accelerator="Apple M3",
    accelerators=1,
    accelerator_memory_gib=32,
    platform="darwin",
)


def planned(run: RunSpec, machine: Machine = LAPTOP, evaluated: int | None = None) -> Plan:
    return make_plan(run, SMOLLM2_135M, machine, origins_of(run), evaluated_episodes=evaluated)


def refusal(run: RunSpec, machine: Machine = LAPTOP, evaluated: int | None = None) -> PlanError:
    with pytest.raises(PlanError) as refused:
        planned(run, machine, evaluated)
    return refused.value


@pytest.mark.parametrize(
    ("device", "machine", "said"),
    [
        ("mps", LAPTOP, "no Apple accelerator (MPS)"),
        ("mps", H200, "no Apple accelerator (MPS)"),
        ("cuda", LAPTOP, "no CUDA device"),
        ("cuda", MAC, "no CUDA device"),
    ],
)
def test_a_device_that_is_not_there_is_refused(device: str, machine: Machine, said: str) -> None:
    refused = refusal(haiku(engine={"device": device}), machine)
    assert refused.message == f"engine.device = {device!r}, but the machine has {said}"
    assert "leave device out" in refused.fix


@pytest.mark.parametrize(("machine", "device"), [(LAPTOP, "cpu"), (H200, "cuda"), (MAC, "mps")])
def test_the_device_that_is_there_is_taken_and_may_be_asked_for(
    machine: Machine, device: str
) -> None:
    assert planned(haiku(), machine).run.recipe.engine.device == device
    assert planned(haiku(engine={"device": device}), machine).run.recipe.engine.device == device


def test_more_threads_than_cores_are_refused_on_the_machine_that_is_planned_for() -> None:
    run = haiku(engine={"threads": 16})
    refused = refusal(run)
    assert "engine.threads = 16, but the machine has 4 CPU cores" in refused.message
    assert refused.fix == "lower it to 4, or leave threads to the planner"
    assert planned(run, H200).run.recipe.engine.threads == 16


def test_what_a_planner_chose_elsewhere_is_not_held_against_the_run() -> None:
    elsewhere = planned(haiku(), H200.changed(accelerators=0, accelerator_memory_gib=0))
    assert elsewhere.run.recipe.engine.threads == 16
    again = make_plan(elsewhere.run, SMOLLM2_135M, LAPTOP.changed(memory_gib=128), elsewhere.origins)
    assert again.run.recipe.engine.threads == 16


@pytest.mark.parametrize(
    ("recipe", "evaluated", "most"),
    [
        ({}, None, 32),
        ({"max_staleness": 1}, None, 64),
        ({}, 100, 100),
        ({}, 3, 32),
        ({"max_staleness": 1}, 100, 164),
        ({"algorithm": SFT(), "group_size": 1}, 100, 100),
    ],
)
def test_slots_that_can_never_be_filled_are_refused(
    recipe: dict, evaluated: int | None, most: int
) -> None:
    run = haiku(engine={"slots": most + 1}, **recipe)
    if evaluated is not None:
        run = run.changed(evals=[{"name": "held", "dataset": ["x"]}])
    refused = refusal(run, evaluated=evaluated)
    assert f"at most {most} episodes are ever in play at once" in refused.message
    assert refused.fix == f"lower it to {most}, or leave slots to the planner"
    engine = run.recipe.engine.changed(slots=most)
    assert planned(run.changed(recipe=run.recipe.changed(engine=engine)), H200, evaluated)


def test_how_many_are_in_play_is_not_known_of_an_environment_or_an_unread_evaluation() -> None:
    assert most_at_once(haiku().changed(environment="envs:Guess"), 0) is None
    evaluated = haiku().changed(evals=[{"name": "held", "dataset": ["x"]}])
    assert most_at_once(evaluated, None) is None


def test_more_rows_of_logits_than_a_micro_batch_has_tokens_are_refused() -> None:
    run = haiku(engine={"logprob_chunk_tokens": 4096, "token_budget": 512}, max_prompt_tokens=64)
    refused = refusal(run)
    assert "logprob_chunk_tokens = 4096, but a micro-batch has at most 512" in refused.message
    assert refused.fix == "lower it to 512, or leave logprob_chunk_tokens out"
    planned(haiku(engine={"token_budget": 64}, max_prompt_tokens=8))  # 256 rows, which nobody set


def test_spinning_threads_of_which_one_is_planned_are_noted() -> None:
    run = haiku(engine={"spin_threads": True})
    assert not any("spin_threads" in note for note in planned(run).notes)
    alone = planned(run, LAPTOP.changed(cpu_cores=1)).notes
    assert any("spin_threads has no effect" in note for note in alone)


@pytest.mark.parametrize("machine", [LAPTOP.changed(memory_gib=1), H200])
@pytest.mark.parametrize("engine", [{}, {"sampler": "vllm"}])
def test_the_machine_that_is_advised_is_large_enough(machine: Machine, engine: dict) -> None:
    run = haiku(adapter=Lora(), engine=engine)
    small = machine.changed(accelerator_memory_gib=min(machine.accelerator_memory_gib, 1.5))
    with pytest.raises(PlanError) as refused:
        make_plan(run, QWEN3_8B, small, origins_of(run))
    advised = int(refused.value.fix.partition(" with ")[2].partition(" GiB")[0])
    name = "accelerator_memory_gib" if machine is H200 else "memory_gib"
    make_plan(run, QWEN3_8B, small.changed(**{name: advised}), origins_of(run))
    with pytest.raises(PlanError):
        make_plan(run, QWEN3_8B, small.changed(**{name: advised - 1}), origins_of(run))


def test_where_vllm_takes_too_large_a_share_no_machine_is_advised() -> None:
    run = haiku(engine={"sampler": {"memory_fraction": 0.95}})
    refused = refusal(run, H200)
    assert refused.fix == "a smaller model"
