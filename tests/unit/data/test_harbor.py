"""Harbor task folders, registries and repositories as tasks of a run."""

from __future__ import annotations

import json
import subprocess

import pytest

from training_gym.data import load
from training_gym.data.harbor import folder_of, read_task
from training_gym.data.harbor.network import canonical_host
from training_gym.data.harbor.registry import best_version
from training_gym.spec.datasets import HarborDataset
from training_gym.spec.errors import DataError

FILES = {
    "task.toml": '[task]\nname = "org/{name}"\n[agent]\nmood = 1\n',
    "instruction.md": "# canary 1\n\nSolve {name}.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "tests/test.sh": "true\n",
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))


def write_task(folder, **changes):
    for path, text in {**FILES, **changes}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace("{name}", folder.name))


def write_tasks(root, names=("one", "two")):
    for name in names:
        write_task(root / name)


def test_a_folder_of_tasks(tmp_path):
    write_tasks(tmp_path / "tasks")
    (tmp_path / "tasks" / "notes.txt").write_text("x")
    found = load(HarborDataset(path="tasks", shuffle=False), seed=0, root=tmp_path)
    assert [task.prompt_text for task in found.tasks] == ["Solve one.\n", "Solve two.\n"]
    origin = found.tasks[0].metadata["harbor"]
    assert (origin["path"], origin["name"]) == ("tasks/one", "org/one")
    assert found.tasks[0].id == origin["digest"][:16]
    assert str(tmp_path) not in found.tasks[0].model_dump_json()
    assert folder_of(found.tasks[0], tmp_path).unknown == ("agent.mood",)


def test_one_folder_patterns_and_system_prompt(tmp_path):
    write_tasks(tmp_path)
    assert len(load(HarborDataset(path="one"), seed=0, root=tmp_path).tasks) == 1
    chosen = HarborDataset(path=".", tasks=("t*",), system_prompt="Be brief.")
    (task,) = load(chosen, seed=0, root=tmp_path).tasks
    assert [message.role for message in task.prompt] == ["system", "user"]
    with pytest.raises(DataError, match="no Harbor task that matches"):
        load(HarborDataset(path=".", tasks=("x*",)), seed=0, root=tmp_path)


def test_a_changed_folder_is_refused(tmp_path):
    write_tasks(tmp_path)
    task = load(HarborDataset(path="one"), seed=0, root=tmp_path).tasks[0]
    (tmp_path / "one/tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt")
    with pytest.raises(DataError, match="has changed"):
        folder_of(task, tmp_path)


def test_a_faulty_task_names_its_folder_and_fault(tmp_path):
    write_task(tmp_path / "bad", **{"task.toml": "[agent]\ntimeout_sec = 'x'"})
    with pytest.raises(DataError, match=r"task\.toml.*timeout_sec"):
        load(HarborDataset(path="bad"), seed=0, root=tmp_path)


def test_a_manifest_pins_digests(tmp_path):
    write_tasks(tmp_path, ("one", "two", "other"))
    pins = {name: read_task(tmp_path / name).digest for name in ("one", "two")}
    entries = "".join(
        f'[[tasks]]\nname = "org/{name}"\ndigest = "sha256:{digest}"\n'
        for name, digest in pins.items()
    )
    (tmp_path / "dataset.toml").write_text('[dataset]\nname = "org/set"\n' + entries)
    assert len(load(HarborDataset(path="."), seed=0, root=tmp_path).tasks) == 2
    (tmp_path / "two/tests/test.sh").write_text("false")
    with pytest.raises(DataError, match=r"org/two is not what dataset\.toml pins"):
        load(HarborDataset(path="."), seed=0, root=tmp_path)


def git(folder, *arguments):
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    write_tasks(folder / "tasks")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    first = git(folder, "rev-parse", "HEAD")
    write_task(folder / "tasks" / "three")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "second")
    return folder, first


def test_a_pinned_commit(repository, tmp_path):
    folder, first = repository
    dataset = HarborDataset(git=f"file://{folder}", commit=first, path="tasks")
    found = load(dataset, seed=0, root=tmp_path / "elsewhere")
    assert len(found.tasks) == 2
    git(folder, "checkout", "-q", "--orphan", "gone")  # from now on the cache answers
    assert folder_of(found.tasks[0], tmp_path).name.startswith("org/")


@pytest.mark.parametrize(
    ("git_url", "commit", "said"),
    [
        ("file:///nowhere", None, "not pinned"),
        ("file:///nowhere", "main", "not pinned"),
        ("file:///nowhere", "0" * 40, "git fetch failed"),
        ("ext::sh -c true", "0" * 40, "no address"),
        ("--upload-pack=x", "0" * 40, "no address"),
    ],
)
def test_repositories_that_cannot_be_read(tmp_path, git_url, commit, said):
    with pytest.raises(DataError, match=said):
        load(HarborDataset(git=git_url, commit=commit), seed=0, root=tmp_path)


def test_a_path_stays_in_its_repository(repository, tmp_path):
    folder, first = repository
    dataset = HarborDataset(git=f"file://{folder}", commit=first, path="../..")
    with pytest.raises(DataError, match="leads out of"):
        load(dataset, seed=0, root=tmp_path)


def test_a_registry(repository, tmp_path):
    folder, first = repository
    remote = {"name": "one", "git_url": f"file://{folder}", "git_commit_id": first}
    entry = {"name": "set", "description": "", "metrics": []}
    index = [
        {**entry, "version": "1.9", "tasks": []},
        {**entry, "version": "1.10", "tasks": [{**remote, "path": "tasks/one"},
                                               {"name": "two", "path": "repository/tasks/two"}]},
    ]  # fmt: skip
    (tmp_path / "registry.json").write_text(json.dumps(index))
    found = load(HarborDataset(path="registry.json", dataset="set"), seed=0, root=tmp_path)
    assert {task.metadata["harbor"]["name"] for task in found.tasks} == {"org/one", "org/two"}
    for task in found.tasks:
        assert folder_of(task, tmp_path).digest == task.metadata["harbor"]["digest"]
    for name, said in (("sets", "no data set"), ("set@3", "no version")):
        with pytest.raises(DataError, match=said):
            load(HarborDataset(path="registry.json", dataset=name), seed=0, root=tmp_path)
    (tmp_path / "registry.json").write_text("{}")
    with pytest.raises(DataError, match="no registry"):
        load(HarborDataset(path="registry.json"), seed=0, root=tmp_path)


@pytest.mark.parametrize(
    ("versions", "best"),
    [
        (["1.0", "head"], "head"),
        (["1.9", "1.10", "1.10rc1"], "1.10"),
        (["2.0a1", "v1.0"], "2.0a1"),
        (["a", "b"], "b"),
        (["zz", "0.1"], "0.1"),
    ],
)
def test_versions(versions, best):
    assert best_version(versions) == best


def test_hosts_have_one_spelling():
    assert canonical_host("Example.COM.") == "example.com"
    assert canonical_host("2001:DB8::0:1") == "2001:db8::1"
    with pytest.raises(ValueError, match="no URL"):
        canonical_host("http://a.com")
