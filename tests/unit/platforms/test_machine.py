import os

import pytest

from training_gym.jobs import memory
from training_gym.jobs.memory import cgroup_folders
from training_gym.platforms.local import machine as module
from training_gym.platforms.local.machine import probe_machine

GIB = 1024**3


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """A tree of cgroups: files by path, and what this process is a member of."""

    def cgroups(membership, **files):
        root = tmp_path / "cgroup"
        root.mkdir()
        for path, text in files.items():
            file = root / path.replace("__", "/").replace("DOT", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "self").write_text(membership)
        folders = cgroup_folders(root, tmp_path / "self")
        for user in (module, memory):
            monkeypatch.setattr(user, "cgroup_folders", lambda: folders)
        return [str(folder.relative_to(root)) for folder in folders]

    return cgroups


@pytest.fixture
def no_tools(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: None)


def test_this_machine_has_something(no_tools):
    found = probe_machine()
    assert 1 <= found.cpu_cores <= os.cpu_count()
    assert found.memory_gib > 0


def test_quotas_and_limits_of_every_enclosing_cgroup_count(cgroups, no_tools, monkeypatch):
    monkeypatch.setattr(memory, "_system_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    folders = cgroups(
        "0::/pod/box\n",
        pod__cpuDOTmax="350000 100000\n",
        pod__box__cpuDOTmax="max 100000\n",
        pod__memoryDOTmax=f"{8 * GIB}\n",
        pod__memoryDOTcurrent=f"{5 * GIB}\n",
        pod__memoryDOTstat=f"anon 1\ninactive_file {GIB}\n",
        pod__box__memoryDOTmax="max\n",
        pod__box__memoryDOTcurrent="1\n",
    )
    assert folders == ["pod/box", "pod", "."]
    found = probe_machine()
    assert (found.cpu_cores, found.memory_gib) == (3, 4.0)


def test_cgroups_of_the_first_version(cgroups, no_tools, monkeypatch):
    monkeypatch.setattr(memory, "_system_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    cgroups(
        "4:memory:/job\n3:cpu,cpuacct:/job\n",
        memory__job__memoryDOTlimit_in_bytes=f"{2 * GIB}",
        memory__job__memoryDOTusage_in_bytes="0",
        memory__memoryDOTlimit_in_bytes=str(1 << 62),
        memory__memoryDOTusage_in_bytes="0",
        cpu__job__cpuDOTcfs_quota_us="50000",
        cpu__job__cpuDOTcfs_period_us="100000",
    )
    found = probe_machine()
    assert (found.cpu_cores, found.memory_gib) == (1, 2.0)


def test_accelerators_as_the_driver_says_and_as_many_as_are_visible(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    row = "Big Fast 80GB, 81920\n"
    monkeypatch.setattr(module, "ask", lambda *command: row + row)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = probe_machine()
    assert (found.accelerator, found.accelerators) == ("Big Fast 80GB", 2)
    assert found.accelerator_memory_gib == 80
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert probe_machine().accelerators == 1
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert probe_machine().accelerator is None


def test_a_driver_that_fails_is_no_accelerator(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: "/bin/false")
    monkeypatch.setattr(module, "ask", lambda *command: "")
    assert probe_machine().accelerators == 0
    monkeypatch.undo()
    assert memory.ask("false") == ""
    assert memory.ask("no-such-tool") == ""


def test_a_mac_says_its_pages(monkeypatch):
    answer = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                     100.\n"
        "Pages active:                  9999.\n"
        "Pages inactive:                  50.\n"
        "Pages purgeable:                 10.\n"
    )
    monkeypatch.setattr(memory, "ask", lambda *command: answer)
    assert memory._mac_bytes() == 160 * 16384
