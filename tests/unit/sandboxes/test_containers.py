"""Podman keeps the contract with a real image; so does the zygote with the same image unpacked."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import subprocess

import pytest

from training_gym.sandboxes.containers import PodmanProvider
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import OciImage, SandboxSpec
from training_gym.testing.sandbox_attacks import ATTACKS, SPEC, try_attack
from training_gym.testing.sandbox_contract import CLAUSES, try_clause
from training_gym.testing.sandbox_images import (
    busybox,
    write_busybox_image,
    write_python_image,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(busybox() is None, reason="no static busybox to make an image of"),
]
PROVIDERS = {"zygote": ZygoteProvider}
if os.geteuid() == 0:
    PROVIDERS["zygote as nobody"] = functools.partial(ZygoteProvider, uid=65534)
if shutil.which("podman"):
    (REPORT,) = asyncio.run(PodmanProvider().probe())
    if REPORT.works:
        PROVIDERS["podman"] = PodmanProvider


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> SandboxSpec:
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)
    return SandboxSpec(image=OciImage(reference=str(write_busybox_image(folder / "box.tar"))))


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_contract_with_an_image(provider, clause, spec) -> None:
    try_clause(clause, PROVIDERS[provider], spec)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory) -> SandboxSpec:
    """An image that attacks can run in."""
    archive = write_python_image(tmp_path_factory.mktemp("image") / "python.tar")
    return SPEC.changed(image=OciImage(reference=str(archive)))


@pytest.mark.skipif("podman" not in PROVIDERS, reason="podman does not work here")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_podman_withstands_what_it_claims_to(attack, attacked) -> None:
    if attack.guarantee not in REPORT.guarantees:
        pytest.skip(f"containers do not claim {attack.guarantee!r}")
    try_attack(attack, PodmanProvider, attacked)


@pytest.mark.skipif("podman" not in PROVIDERS, reason="podman does not work here")
def test_forks_leave_no_images(spec) -> None:
    def images() -> set[str]:
        words = ("podman", "images", "-q", "localhost/training-gym-snapshot")
        return set(subprocess.run(words, capture_output=True, text=True).stdout.split())

    async def main() -> None:
        provider = PodmanProvider()
        async with await provider.create(spec) as parent:
            (child,) = await parent.fork(1)
            (grandchild,) = await child.fork(1)
            assert images() - before
            await grandchild.destroy()
            await child.destroy()
        await provider.close()

    before = images()
    asyncio.run(main())
    assert images() <= before
