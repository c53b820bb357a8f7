import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from training_gym.jobs.definition import may_launch, read_definition
from training_gym.spec.errors import GymError
from training_gym.spec.run import RunSpec

HEAD = "from training_gym.spec.run import RunSpec\n"
ONE = "config = RunSpec(model='m', dataset=['x'], reward='r:f', name='one')\n"
TWO = ONE + "other = RunSpec(model='m', dataset=['x'], reward='r:f', name='two')\n"


@pytest.fixture(autouse=True)
def _modules_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def written(folder: Path, text: str, name: str = "my_run.py") -> str:
    (folder / name).write_text(HEAD + text)
    return str(folder / name)


def test_the_only_definition_of_a_file_needs_no_name(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + "alias = config\n")
    assert read_definition(file, RunSpec).name == "one"
    assert read_definition(f"{file}:config", RunSpec).name == "one"


def test_one_of_several_is_named(tmp_path: Path) -> None:
    assert read_definition(written(tmp_path, TWO) + ":other", RunSpec).name == "two"


def test_a_module_is_named_like_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pkg").mkdir()
    written(tmp_path / "pkg", ONE, "train.py")
    monkeypatch.chdir(tmp_path)
    assert read_definition("pkg.train:config", RunSpec).name == "one"


def test_siblings_of_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "sibling_of_it.py").write_text("NAME = 'from sibling'\n")
    text = "import sibling_of_it\n" + ONE.replace("'one'", "sibling_of_it.NAME")
    assert read_definition(written(tmp_path, text), RunSpec).name == "from sibling"


def test_a_relative_import_says_how_to_name_the_module(tmp_path: Path) -> None:
    file = written(tmp_path, "from .rewards import f\n" + ONE)
    with pytest.raises(GymError) as caught:
        read_definition(file, RunSpec)
    assert "package.my_run" in caught.value.fix


def test_nothing_launches_while_a_file_is_read(tmp_path: Path) -> None:
    text = ONE + "from training_gym.jobs.definition import may_launch\nassert not may_launch()\n"
    read_definition(written(tmp_path, text), RunSpec)
    assert may_launch()


@pytest.mark.parametrize(
    ("text", "name", "message", "fix"),
    [
        (TWO, "", "defines 2: config, other", "say which: "),
        (TWO, "ohter", "defines no RunSpec called 'ohter'", "did you mean 'other'?"),
        ("", "", "defines no RunSpec", "add config = RunSpec(…) to it"),
        ("", "config", "defines no RunSpec called 'config'", "add config = RunSpec(…)"),
        ("x = 1 +", "", "my_run.py, line 2: SyntaxError", "mend my_run.py"),
        ("x = 1\ny = z", "", "line 3: NameError: name 'z' is not defined", "mend my_run.py"),
        ("RunSpec(modle='m')", "", "RunSpec has no field 'modle'", "did you mean 'model'?"),
    ],
)
def test_a_file_without_the_definition_is_two_lines(
    text: str, name: str, message: str, fix: str, tmp_path: Path
) -> None:
    where = written(tmp_path, text) + (f":{name}" if name else "")
    with pytest.raises(GymError) as refused:
        read_definition(where, RunSpec)
    assert message in refused.value.message
    assert fix in refused.value.fix
    assert "my_run" not in sys.modules or "defines" in message


@pytest.mark.parametrize("name", ["json.py", "my.run.py", "pytest.py"])
def test_a_name_that_a_job_could_not_import_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(GymError) as refused:
        read_definition(written(tmp_path, ONE, name), RunSpec)
    assert name in refused.value.message
    assert "rename the file" in refused.value.fix


def test_a_missing_file_and_module_are_named(tmp_path: Path) -> None:
    with pytest.raises(GymError, match="there is no file"):
        read_definition(str(tmp_path / "nothing.py"), RunSpec)
    with pytest.raises(GymError, match="there is no file or module 'nothing_at_all'"):
        read_definition("nothing_at_all:config", RunSpec)
