"""What the quickstart shows at its end: examples, verdict, interval, where to go on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from training_gym.cli.comparison import Comparison, Pair
from training_gym.cli.escapes import visible
from training_gym.cli.output import console, number, short_path, span
from training_gym.cli.program import dashboard_command, program

if TYPE_CHECKING:
    from rich.console import Console

    from training_gym.runs import Run

EXAMPLES = 3
LONGEST = 240
"""Characters of an answer that are shown."""

_VERDICTS = {
    "improved": ("green", "It learned: held-out verses got better, and no less varied."),
    "less_varied": ("yellow", "Not counted as learned: the reward rose, but verses vary less."),
    "no_difference": ("yellow", "No difference that chance does not explain."),
    "worse": ("red", "It got worse."),
}


def summary(comparison: Comparison, run: Run, *, seed: int) -> dict[str, Any]:
    """The fields of `quickstart/1`."""
    result = run.result
    assert result is not None, "a run that was compared has a result"
    return {
        "run_id": run.id,
        "baseline_mean": comparison.baseline_mean,
        "trained_mean": comparison.trained_mean,
        "difference_low": comparison.difference_low,
        "difference_high": comparison.difference_high,
        "steps": result.steps,
        "wall_s": result.wall_s,
        "checkpoint": result.checkpoint.path if result.checkpoint else None,
        "verdict": comparison.verdict,
        "baseline_distinctness": comparison.baseline_distinctness,
        "trained_distinctness": comparison.trained_distinctness,
        "seed": seed,
    }


def show(comparison: Comparison, run: Run, *, smoke: bool = False, on_stderr: bool = False) -> None:
    """Show the report on stdout, or on stderr where stdout belongs to JSON."""
    draw(console(sys.stderr if on_stderr else sys.stdout), comparison, run, smoke=smoke)


def draw(screen: Console, comparison: Comparison, run: Run, *, smoke: bool = False) -> None:
    """Draw the report on any console."""
    screen.print()
    screen.print(_examples(_of_different_topics(comparison.pairs)[:EXAMPLES]))
    colour, sentence = _VERDICTS[comparison.verdict]
    if smoke:
        colour, sentence = "yellow", "Every stage works. A tiny random model learns no poetry."
    screen.print(Text(sentence, style=f"bold {colour}"))
    for line in _figures(comparison, run):
        screen.print(Text(line))
    screen.print()
    screen.print(Text("What next", style="bold"))
    for what, command in next_steps(run).items():
        screen.print(Text(f"{what}\n  {command}"), soft_wrap=True)  # whole, to be pasted


def _of_different_topics(pairs: Sequence[Pair]) -> list[Pair]:
    """The first pair of each topic."""
    first: dict[str, Pair] = {}
    for pair in pairs:
        first.setdefault(pair.task, pair)
    return list(first.values())


def _examples(pairs: Sequence[Pair]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 1, 0), header_style="bold")
    table.add_column("held-out topic", overflow="fold")
    table.add_column("before", ratio=1, overflow="fold")
    table.add_column("after", ratio=1, overflow="fold")
    for pair in pairs:
        table.add_row(
            Text(visible(pair.answer)),
            _verse(pair.before, pair.reward_before),
            _verse(pair.after, pair.reward_after),
        )
    return table


def _verse(text: str, reward: float | None) -> Text:
    shown = visible(text.strip())
    if len(shown) > LONGEST:
        shown = shown[: LONGEST - 1] + "…"
    judged = "not judged" if reward is None else f"reward {number(reward, 2)}"
    return Text(shown + "\n").append(judged, style="dim")


def _figures(comparison: Comparison, run: Run) -> list[str]:
    result = run.result
    assert result is not None, "a run that was compared has a result"
    change = comparison.trained_mean - comparison.baseline_mean
    lines = [
        f"mean reward on {len({p.task for p in comparison.pairs})} held-out topics: "
        f"{comparison.baseline_mean:.3f} before, {comparison.trained_mean:.3f} after",
        f"difference {change:+.3f}, 95 % interval {comparison.difference_low:+.3f} to "
        f"{comparison.difference_high:+.3f} (paired by topic)",
        f"different words: {comparison.baseline_distinctness:.0%} before, "
        f"{comparison.trained_distinctness:.0%} after",
        f"{result.steps} steps in {span(result.wall_s)}, evaluations included",
        f"run         {short_path(run.path)}",
    ]
    if result.checkpoint:
        lines.append(f"checkpoint  {short_path(result.checkpoint.path)}")
    return lines


def next_steps(run: Run) -> dict[str, str]:
    """What somebody may want now, and the command for it as it can be pasted here."""
    assert run.result is not None, "a run that was compared has a result"
    steps, ours = run.result.steps or 1, program()
    commands = {
        "what it did, step by step, in the browser": dashboard_command(),
        "the verses that were paid best": f"{ours} episodes {run.id} --order reward",
        "why the reward moved": f"{ours} explain {run.id}",
        "go on from here for as many steps again": (
            f"{ours} runs fork {run.id} --set recipe.num_steps={2 * steps}"
        ),
        "this definition as a file, to make your own from": f"{ours} init haiku my-haiku",
    }
    if steps < 2:  # nothing to compare
        del commands["why the reward moved"]
    return commands
