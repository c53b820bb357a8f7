"""What travels: from scripts, packages, prompts and a notebook with a real kernel."""

import json
import linecache
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from training_gym.jobs import capture as capture_module
from training_gym.jobs.capture import Origin, capture, data_path, origin_of_file
from training_gym.spec.code import Code
from training_gym.spec.errors import GymError, SourceError, SpecError

SHOW = """
import json, sys
from training_gym.jobs.capture import capture, origin_of_file
from training_gym.spec.code import Code
from training_gym.spec.errors import GymError

def show(*targets, filename, include=()):
    try:
        codes = [Code.of(target) for target in targets]
        found = capture(codes, origin_of_file(filename), include)
    except GymError as error:
        print(json.dumps({"error": [error.message, error.fix]}))
    else:
        inline = {k: v.decode() for k, v in found.files.items() if isinstance(v, bytes)}
        print(json.dumps({"refs": [c.ref for c in codes], "files": sorted(found.files), **inline}))
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))


def shown(folder: Path, *arguments: str, stdin: str | None = None) -> dict:
    """What a program of its own says it would send; `show` can be imported as `showing`."""
    library = folder.parent / f"{folder.name}-lib"
    write(library / "site-packages", {"showing.py": SHOW})
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(library / "site-packages"),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def environment(*places: Path) -> dict[str, str]:
    import os

    source = Path(capture_module.__file__).parents[2]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (source, *places)))}


HELPERS = {
    "helpers.py": "import constants\ndef count(text): return len(text) * constants.SCALE\n",
    "constants.py": "SCALE = 2\n",
    "unrelated.py": "raise RuntimeError\n",
}


def test_a_script_travels_with_the_siblings_it_imports(tmp_path: Path) -> None:
    script = """
        import json
        from showing import show

        def reward(episode):
            import helpers
            return helpers.count(episode)

        show(reward, filename=__file__)
    """
    write(tmp_path, {"train.py": script, **HELPERS})
    found = shown(tmp_path, "train.py")
    assert found["refs"] == ["train:reward"]
    assert found["files"] == ["constants.py", "helpers.py", "train.py"]


def test_a_module_run_with_m_travels_with_its_whole_package(tmp_path: Path) -> None:
    script = """
        from showing import show
        from .rewards import reward
        from lib.scoring import weigh

        show(reward, filename=__file__, include=["words.txt"])
    """
    write(
        tmp_path,
        {
            "pkg/__init__.py": "",
            "pkg/train.py": script,
            "pkg/rewards.py": "from . import deep\ndef reward(episode): return 1\n",
            "pkg/deep/__init__.py": "",
            "pkg/deep/unseen.py": "",
            "pkg/words.txt": "a b",
            "lib/scoring.py": "def weigh(): return 1\n",
            "lib/other.py": "",
            **HELPERS,
        },
    )
    found = shown(tmp_path, "-m", "pkg.train")
    assert found["refs"] == ["pkg.rewards:reward"]
    assert found["files"] == [
        "lib/scoring.py",
        "pkg/__init__.py",
        "pkg/deep/__init__.py",
        "pkg/deep/unseen.py",
        "pkg/rewards.py",
        "pkg/train.py",
        "pkg/words.txt",
    ]


def test_what_travelled_can_be_imported_elsewhere(tmp_path: Path) -> None:
    script = """
        from showing import show
        from helpers import count

        def reward(episode): return count(episode)

        show(reward, filename=__file__)
    """
    write(tmp_path / "here", {"train.py": script, **HELPERS})
    files = shown(tmp_path / "here", "train.py")["files"]
    write(tmp_path / "there", {name: (tmp_path / "here" / name).read_text() for name in files})
    code = "import io, sys; sys.stdout = io.StringIO(); import train; out = train.reward('abc')\n"
    code += "sys.stdout = sys.__stdout__; print(out)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "there",
        env=environment(tmp_path / "here-lib" / "site-packages"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "6"


def test_code_typed_at_a_prompt_is_refused_by_name_or_travels(tmp_path: Path) -> None:
    typed = "\n".join(
        [
            "from showing import show",
            "SCALE = 3",
            "def reward(episode): return SCALE",
            "",
            "show(reward, filename='<stdin>')",
            "",
        ]
    )
    found = shown(tmp_path, "-q", "-i", stdin=typed)
    if sys.version_info < (3, 13):
        assert found["error"] == [
            "'reward' was typed at a prompt that keeps no source, so it cannot travel to the job",
            "put it in a .py file or a notebook cell",
        ]
    else:
        assert found["refs"] == ["notebook_cells:reward"]
        assert "SCALE = 3" in found["notebook_cells.py"]
        assert "show(" not in found["notebook_cells.py"]


def test_a_prompt_that_keeps_source_is_read_in_the_order_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = ["def f(): return X\n", "X = 1\n", "import json\n"]
    for number, text in reversed(list(enumerate(inputs))):
        entry = (len(text), None, text.splitlines(keepends=True), f"<python-input-{number}>")
        monkeypatch.setitem(linecache.cache, f"<python-input-{number}>", entry)
    found = capture([Code(ref="notebook_cells:f")], Origin(Path.cwd()))
    assert found.files == {"notebook_cells.py": b"def f(): return X\n\n\nX = 1\n"}


CELLS = [
    "%pip --version",
    "import re\nfrom showing import show\nfrom helpers import count",
    "LIMIT = 5\n!echo hello",
    "%%time\ndef shape(text):\n    return min(LIMIT, count(re.sub('x', '', text)))",
    "class Scorer:\n    def __call__(self, episode):\n        return shape(episode)",
    "print('this cell is not needed')",
    "show(Scorer(), filename='<ipython>')",
    "show(lambda episode: 1, filename='<ipython>')",
]


def test_a_notebooks_cells_travel_from_a_real_kernel(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    write(tmp_path, HELPERS)
    write(tmp_path / "lib" / "site-packages", {"showing.py": SHOW})
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=environment(tmp_path / "lib" / "site-packages"))
    found, refused = (json.loads(cell.outputs[0].text) for cell in notebook.cells[-2:])
    assert "error" not in found, found
    assert found["refs"] == ["notebook_cells:Scorer"]
    assert found["files"] == ["constants.py", "helpers.py", "notebook_cells.py"]
    source = found["notebook_cells.py"]
    assert "not needed" not in source
    assert "get_ipython" not in source
    assert "show(" not in source
    write(tmp_path / "job", {"notebook_cells.py": source, **HELPERS})
    done = subprocess.run(
        [sys.executable, "-c", "from notebook_cells import Scorer; print(Scorer()('axa'))"],
        cwd=tmp_path / "job",
        env=environment(tmp_path / "lib" / "site-packages"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "4"
    assert "a lambda" in refused["error"][0]


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("functools:partial", "'partial' of 'functools' cannot travel"),
        ("builtins:len", "'len' of 'builtins' cannot travel"),
        (
            "nowhere_at_all:reward",
            "the source of 'reward' (module 'nowhere_at_all') cannot be found",
        ),
    ],
)
def test_what_has_no_source_is_refused_by_name(ref: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        capture([Code(ref=ref)], Origin(tmp_path))
    assert message in refused.value.message


def test_a_compiled_module_is_refused(tmp_path: Path) -> None:
    import importlib.machinery

    (tmp_path / f"fast{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    with pytest.raises(SourceError, match="is compiled and cannot travel as source"):
        capture([Code(ref="fast:reward")], Origin(tmp_path))


def test_installed_packages_and_our_own_scorers_stay_at_home(tmp_path: Path) -> None:
    codes = [Code(ref="pydantic:BaseModel"), Code(ref="training_gym.rewards.library:ExactMatch")]
    assert capture(codes, Origin(tmp_path)).files == {}


def test_further_files_keep_their_place(tmp_path: Path) -> None:
    write(tmp_path, {"data/a.txt": "a", "data/deep/b.txt": "b", "data/__pycache__/c.pyc": "c"})
    found = capture([], Origin(tmp_path), ["data"])
    assert sorted(found.files) == ["data/a.txt", "data/deep/b.txt"]
    assert sorted(capture([], Origin(tmp_path), ["data/*.txt"]).files) == ["data/a.txt"]


@pytest.mark.parametrize(
    ("pattern", "message"), [("missing", "matches nothing"), ("../x", "leads out of")]
)
def test_a_pattern_that_finds_nothing_is_an_error(
    pattern: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=message):
        capture([], Origin(tmp_path), [pattern])


def test_data_lies_beside_the_module_that_names_it(tmp_path: Path) -> None:
    origin = Origin(tmp_path / "pkg", "pkg.train")
    assert data_path(tmp_path / "pkg" / "tasks.csv", origin) == "pkg/tasks.csv"
    outside = data_path(tmp_path / "tasks.csv", origin)
    assert outside.startswith("data/")
    assert outside.endswith("/tasks.csv")


def test_a_definition_outside_any_file_belongs_to_the_working_folder() -> None:
    assert origin_of_file("<stdin>") == Origin(Path.cwd())
    assert origin_of_file(json.__file__) == Origin(Path.cwd())
    here = origin_of_file(__file__)
    assert here.folder == Path(__file__).parent
    assert issubclass(SourceError, GymError)
