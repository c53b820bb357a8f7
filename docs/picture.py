"""Draw the README's picture: the terminal at the end of a quickstart that has run.

.venv/bin/python docs/picture.py RUN
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from training_gym.cli.comparison import compare
from training_gym.cli.quickstart_report import draw
from training_gym.runs import Run

PICTURE = Path(__file__).parent / "images" / "quickstart.svg"
WIDTH = 100

_FONT_FACES = re.compile(r"\s*@font-face \{\{.*?\}\}", re.S)


def picture(run: Run) -> str:
    """The report as SVG; it loads no font or anything else from the network."""
    screen = Console(file=io.StringIO(), width=WIDTH, record=True, markup=False, highlight=False)
    screen.print(Text("$ make quickstart", style="bold"))
    first = run.plan.run.evaluations[0].name
    draw(screen, compare(run, first), run)
    return screen.export_svg(
        title="make quickstart", code_format=_FONT_FACES.sub("", CONSOLE_SVG_FORMAT)
    )


def main() -> None:
    """Draw it from the records of one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="id of a finished quickstart, or a unique beginning of it")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(Run.from_id(parser.parse_args().run)))


if __name__ == "__main__":
    main()
