"""Many trials at one task: its environment is built once, whoever asks first."""

import asyncio

import pytest

from training_gym.environments.harbor.stage import WARM, Stage
from training_gym.spec.errors import EnvironmentFailure
from training_gym.spec.sandboxes import Network, OciImage, Resources, SandboxSpec
from training_gym.testing.fake_sandboxes import FakeProvider


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\nRUN echo seed\n")
    return tmp_path


def built(stage, folder, *, base="host"):
    return stage.environment(
        folder,
        docker_image=None,
        base=base,
        network=Network(),
        resources=Resources(),
        timeout_s=60.0,
    )


def test_who_comes_during_a_build_waits_for_it(folder):
    async def play():
        provider = FakeProvider(start_s=0.01)
        stage = Stage(provider)
        found = await asyncio.gather(*(built(stage, folder) for _ in range(8)))
        snapshots = len(provider.snapshots)
        await stage.close()
        return provider, found, snapshots

    provider, found, snapshots = asyncio.run(play())
    assert (provider.created, snapshots) == (1, 1)
    assert all(each is found[0] for each in found)
    assert not provider.snapshots


def test_a_build_that_was_given_up_is_done_by_the_next(folder):
    async def play():
        stage = Stage(FakeProvider(start_s=0.05))
        first = asyncio.create_task(built(stage, folder))
        second = asyncio.create_task(built(stage, folder))
        await asyncio.sleep(0.01)
        first.cancel()
        found = await second
        await stage.close()
        return first.cancelled(), found.snapshot

    cancelled, snapshot = asyncio.run(play())
    assert cancelled
    assert snapshot is not None


def test_a_failed_build_is_tried_again(folder):
    fault = EnvironmentFailure("no", fix="wait")

    async def play():
        stage = Stage(FakeProvider(failures=(fault,)))
        with pytest.raises(EnvironmentFailure):
            await built(stage, folder)
        found = await built(stage, folder)
        await stage.close()
        return found

    assert asyncio.run(play()).snapshot is not None


def test_sandboxes_come_from_the_warm_pool_and_end_with_the_stage(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path))
    spec = SandboxSpec(image=OciImage(reference="one"))

    async def play():
        provider = FakeProvider()
        stage = Stage(provider, warm=WARM)
        used = []
        for _ in range(3):
            async with stage.sandbox(spec) as sandbox:
                used.append(sandbox.id)
            await asyncio.sleep(0.01)
        spares = len(provider.alive)
        await stage.close()
        return used, spares, len(provider.alive)

    used, spares, left = asyncio.run(play())
    assert len(set(used)) == 3
    assert spares >= 1
    assert left == 0
