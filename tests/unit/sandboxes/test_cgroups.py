"""Control groups are found and limited on v1, v2 and mixtures of both, by imitated trees."""

from __future__ import annotations

from pathlib import Path

from training_gym.sandboxes.zygote.cgroups import Group, find
from training_gym.spec.sandboxes import Resources

LIMITS = Resources(memory_mb=100, disk_mb=28, processes=7, cpus=0.5)


def imitate(root: Path, folder: str, **files: str) -> Path:
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def test_version_1_has_a_tree_for_each_controller(tmp_path) -> None:
    for name in ("memory", "pids", "cpu"):
        imitate(tmp_path, f"cg/{name}/mine")
    mounts = "".join(
        f"30 20 0:2{n} / /cg/{name} rw - cgroup cgroup rw,{name}\n"
        for n, name in enumerate(("memory", "pids", "cpu", "freezer"))
    )
    groups = "4:memory:/mine\n3:pids:/mine\n2:cpu,cpuacct:/mine\n0::/\n"
    found = find(groups, mounts, root=str(tmp_path))
    assert [h.controllers for h in found] == [("memory",), ("pids",), ("cpu",)]
    assert {h.members for h in found} == {"tasks"}
    assert found[0].parent == tmp_path / "cg/memory/mine"


def test_version_2_enables_what_it_needs_at_the_nearest_place_that_allows(tmp_path) -> None:
    top = imitate(
        tmp_path, "cg", cgroup__controllers="cpu memory pids io", cgroup__subtree_control=""
    )
    # Our own group has processes: controllers cannot be turned on below it.
    own = imitate(tmp_path, "cg/user", cgroup__controllers="")
    (own / "cgroup.subtree_control").mkdir()
    mounts = "30 20 0:26 / /cg rw - cgroup2 cgroup2 rw\n"
    found = find("0::/user\n", mounts, root=str(tmp_path))
    assert [(h.parent, h.controllers, h.members) for h in found] == [
        (top, ("memory", "pids", "cpu"), "cgroup.procs")
    ]


def test_limits_of_version_2(tmp_path) -> None:
    imitate(tmp_path, "cg", cgroup__controllers="cpu memory pids", cgroup__subtree_control="")
    found = find("0::/\n", "30 20 0:26 / /cg rw - cgroup2 cgroup2 rw\n", root=str(tmp_path))
    files = {"memory__max": "", "memory__swap__max": "", "pids__max": "", "cpu__max": ""}
    events = "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"
    folder = imitate(tmp_path, "cg/box", memory__events=events, **files)
    group = Group(found, "box")
    group.limit(LIMITS)
    assert (folder / "memory.max").read_text() == str(128 << 20)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "pids.max").read_text() == "7"
    assert (folder / "cpu.max").read_text() == "50000 100000"
    assert group.oom_kills() == 2


def test_a_machine_without_groups_has_none() -> None:
    assert find("", "") == []


def test_a_group_weighs_as_much_as_a_process_of_its_owner(tmp_path, monkeypatch) -> None:
    imitate(tmp_path, "cg", cgroup__controllers="cpu", cgroup__subtree_control="")
    found = find("0::/\n", "30 20 0:26 / /cg rw - cgroup2 cgroup2 rw\n", root=str(tmp_path))
    for number, (nice, weight) in enumerate(((0, "50"), (5, "16"), (-5, "153"), (-20, "4337"))):
        folder = imitate(tmp_path, f"cg/box{number}", cpu__max="", cpu__weight="")
        monkeypatch.setattr("os.getpriority", lambda *_, nice=nice: nice)
        Group(found, f"box{number}").limit(LIMITS)
        assert (folder / "cpu.weight").read_text() == weight
