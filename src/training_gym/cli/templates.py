"""The tutorials, as files that `init` writes and the quickstart runs.

They lie in `tutorials/` of the repository and, in an installed package, in `cli/tutorials/`: the
same bytes, put there by the build.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training_gym.spec.errors import GymError, did_you_mean


class TemplateError(GymError):
    """A template is unknown, or would overwrite something."""

    exit_code = 2


@dataclass(frozen=True)
class Template:
    """One tutorial."""

    about: str
    files: tuple[str, ...]
    """Paths below the tutorials' folder; the definition is the first."""
    extras: tuple[str, ...] = ()
    """Extras of training-gym that it needs besides `local`."""


TEMPLATES: dict[str, Template] = {
    "haiku": Template(
        "poems of 5, 7 and 5 syllables: a reward in a dozen lines", ("haiku.py",), ("haiku",)
    ),
    "math": Template(
        "boxed mathematics on a jsonl file", ("math_jsonl.py", "data/math.jsonl"), ("math",)
    ),
    "reasoning": Template(
        "tasks that reasoning-gym generates and judges", ("reasoning.py",), ("reasoning",)
    ),
    "sft": Template("supervised fine-tuning on a csv file", ("sft_csv.py", "data/sft.csv")),
    "code": Template(
        "generated programming tasks, graded in sandboxes (Linux)", ("code_cases.py",)
    ),
    "guess-number": Template("several turns as a game: reset and step", ("guess_number.py",)),
    "calculator": Template("an agent with tools that does sums", ("calculator_agent.py",)),
    "coding-agent": Template(
        "programming in turns, tried and graded in sandboxes (Linux)", ("coding_agent.py",)
    ),
    "black-box-agent": Template(
        "the agent you already have, through the gateway", ("black_box_agent.py",)
    ),
    "custom-environment": Template(
        "several turns in an environment of your own", ("custom_environment.py",)
    ),
}


def find(name: str) -> Template:
    """The template of that name; raises `TemplateError` with the nearest one."""
    if name not in TEMPLATES:
        raise TemplateError(f"no template is called {name!r}", fix=did_you_mean(name, TEMPLATES))
    return TEMPLATES[name]


def content(file: str) -> bytes:
    """The bytes of a tutorial's file."""
    return (_folder() / file).read_bytes()


def write(template: Template, directory: Path) -> list[Path]:
    """Write the template's files below `directory`, all or none; returns where they lie."""
    targets = [directory / file for file in template.files]
    there = next((target for target in targets if target.exists()), None)
    if there is not None:
        raise TemplateError(
            f"{there} exists and would be overwritten", fix="give another folder, or move it away"
        )
    try:
        for file, target in zip(template.files, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as stream:
                stream.write(content(file))
    except OSError as error:
        raise TemplateError(
            f"cannot write to {directory}: {error.strerror}", fix="give a folder that is writable"
        ) from error
    return targets


def _folder() -> Path:
    packaged = Path(__file__).parent / "tutorials"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "tutorials"
