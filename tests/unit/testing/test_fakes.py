import asyncio

import pytest

from training_gym.spec.engine import Engine, Support
from training_gym.spec.errors import PlatformError
from training_gym.spec.job import Platform
from training_gym.spec.plan import Architecture, Machine, MemoryEstimate, Plan
from training_gym.spec.run import RunSpec
from training_gym.testing.fake_engine import FakeEngine, tiny_job
from training_gym.testing.fake_platform import FakePlatform


@pytest.fixture
def plan(tmp_path):
    run = RunSpec(
        model="tiny",
        dataset={"kind": "file", "path": str(tmp_path / "rows.jsonl")},
        recipe={"num_steps": 7, "max_restarts": 2},
        secrets=("A_TOKEN",),
    )
    sizes = dict.fromkeys(Architecture.model_fields, 1)
    return Plan(
        run=run,
        origins={},
        architecture=Architecture(**{**sizes, "family": "tiny", "tied_embeddings": True}),
        machine=Machine(cpu_cores=1, memory_gib=1),
        memory=MemoryEstimate(**dict.fromkeys(MemoryEstimate.model_fields, 0.1)),
        slots=1,
        token_budget=64,
        max_sequence_tokens=64,
    )


def test_a_fake_job_becomes_what_the_test_says():
    async def story():
        platform: Platform = FakePlatform()
        ref = await platform.submit(tiny_job("r1"), "k")
        assert await platform.submit(tiny_job("r1"), "k") == ref
        assert await platform.find("k") == ref
        assert await platform.find("other") is None
        assert (await platform.state(ref)).status == "queued"
        platform.become("k", "running", log="hello\n")
        first = await platform.logs(ref)
        platform.become("k", "running", log="again\n")
        assert first.text == "hello\n"
        assert (await platform.logs(ref, first.cursor)).text == "again\n"
        platform.jobs["k"].files["result.json"] = b"{}"
        assert await platform.fetch(ref, "result.json") == b"{}"
        with pytest.raises(PlatformError, match="'absent'"):
            await platform.fetch(ref, "absent")
        await platform.cancel(ref)
        assert (await platform.state(ref)).status == "cancelled"
        platform.become("k", "succeeded", exit_code=0)
        await platform.cancel(ref)
        assert (await platform.state(ref)).status == "succeeded"
        with pytest.raises(PlatformError, match="no job was submitted"):
            await platform.state(ref.changed(key="other"))
        assert (await platform.probe()).cpu_cores == 4
        assert platform.capabilities().detached
        assert "r1" in platform.render(tiny_job("r1"))["attempts/1/job.json"]

    asyncio.run(story())


def test_a_fake_engine_renders_jobs_of_the_tiny_engine(plan):
    refusal = Support(path="recipe.adapter", verdict="refused", reason="why", fix="how")
    engine: Engine = FakeEngine("--step-s", "0", refused=[refusal])
    job = engine.render(plan, "r1", 3)
    assert job.groups[0].command[2:] == (
        "training_gym.testing.tiny_engine",
        "--steps",
        "7",
        "--step-s",
        "0",
    )
    assert (job.attempt, job.max_restarts, job.secrets) == (3, 2, ("A_TOKEN",))
    assert engine.supports(plan.run).refused == (refusal,)
    assert FakeEngine().supports(plan.run).refused == ()
