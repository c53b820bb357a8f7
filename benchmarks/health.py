"""How good are the health rules? Makes healthy and sick runs, and counts what is said of each.

    .venv/bin/python benchmarks/health.py --runs DIR            # makes what is missing: an hour
    .venv/bin/python benchmarks/health.py --runs DIR --no-make  # only counts
    … --write-docs      puts the table into docs/health.md
    … --corpus DIR      packs runs for tests

Rules were written and changed while looking at runs of seed 0 only; the figures are of the others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from health_runs import make_run
from health_scenarios import SCENARIOS, STUCK, Scenario

from training_gym.records.health.alerts import RANK, Alert
from training_gym.records.health.replay import changes
from training_gym.records.health.rules import RULES
from training_gym.records.run_directory import RunDirectory
from training_gym.testing.packed_run import pack

SEEN_SEEDS = (0,)
"""Runs with these seeds were looked at while the rules were written."""
BEGIN, END = "<!-- benchmarks/health.py -->", "<!-- end -->"
DOCS = Path(__file__).parents[1] / "docs" / "health.md"


@dataclass(frozen=True)
class Judged:
    """What the rules said of one run."""

    scenario: Scenario
    seed: int
    opened: tuple[Alert, ...]
    """Warnings and alarms, as they were when they opened."""

    @property
    def rules(self) -> set[str]:
        """Rules that spoke."""
        return {alert.rule for alert in self.opened}


def judge(scenario: Scenario, seed: int, folder: Path) -> Judged:
    """Replay one run."""
    first: dict[str, Alert] = {}
    for alert in changes(RunDirectory(folder)):
        if RANK[alert.severity] > 0:
            first.setdefault(alert.id, alert)
    return Judged(scenario, seed, tuple(first.values()))


def rows(judged: Sequence[Judged]) -> list[dict[str, object]]:
    """Precision and recall of every rule over these runs."""
    found = []
    for rule in RULES:
        sick = [one for one in judged if rule.name in one.scenario.expected]
        hit = [one for one in sick if rule.name in one.rules]
        spoke = [one for one in judged if rule.name in one.rules]
        allowed = [one for one in spoke if rule.name in one.scenario.tolerated]
        found.append(
            {
                "rule": rule.name,
                "sick": len(sick),
                "found": len(hit),
                "spoke": len(spoke),
                "right": len(hit),
                "consequence": len(allowed) - len(hit),
                "wrong": len(spoke) - len(allowed),
                "recall": len(hit) / len(sick) if sick else None,
                "precision": len(allowed) / len(spoke) if spoke else None,
                "steps": _steps(hit, rule.name),
            }
        )
    return found


def _steps(hit: Iterable[Judged], rule: str) -> float | None:
    """Median step at which the alert opened."""
    steps = [
        alert.last_step
        for one in hit
        for alert in one.opened
        if alert.rule == rule and alert.last_step is not None
    ]
    return statistics.median(steps) if steps else None


def blamed(judged: Sequence[Judged]) -> tuple[int, int]:
    """How often the watchdog named the component that was stuck, of how many."""
    named = total = 0
    for one in judged:
        component = STUCK.get(one.scenario.name)
        if component is None:
            continue
        total += 1
        told = [a.details.get("component") for a in one.opened if a.rule == "stall"]
        named += component in told
    return named, total


def healthy(judged: Sequence[Judged]) -> tuple[int, int]:
    """Healthy runs of which something was said, of how many."""
    runs = [one for one in judged if one.scenario.healthy]
    return sum(bool(one.rules - one.scenario.tolerated) for one in runs), len(runs)


def page(judged: Sequence[Judged]) -> str:
    """The table and what goes with it."""
    lines = [
        "| rule | sick runs | found | recall | spoke | of these consequences | wrong | precision "
        "| opened at step |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows(judged):
        cells = [
            f"`{row['rule']}`",
            row["sick"] or "–",
            row["found"] if row["sick"] else "–",
            _percent(row["recall"]),
            row["spoke"],
            row["consequence"],
            row["wrong"],
            _percent(row["precision"]),
            "–" if row["steps"] is None else f"{row['steps']:g}",
        ]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    spoke, runs = healthy(judged)
    named, stuck = blamed(judged)
    seeds = sorted({one.seed for one in judged})
    lines += [
        "",
        f"{len(judged)} runs, seeds {', '.join(map(str, seeds))}; the rules were written looking "
        f"at runs of seed {', '.join(map(str, SEEN_SEEDS))}, none of which counts here. Something "
        f"was said of {spoke} of {runs} healthy runs. The watchdog named the right component in "
        f"{named} of {stuck} stuck runs.",
    ]
    return "\n".join(lines)


def _percent(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, float) else "–"


def write_docs(text: str) -> None:
    """Put the table between its marks in the documentation."""
    before, rest = DOCS.read_text().split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main() -> int:
    """Make, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", default="1,2", help="which seeds to judge")
    parser.add_argument("--only", nargs="*", help="names of scenarios")
    parser.add_argument("--no-make", action="store_true", help="judge what is there")
    parser.add_argument("--details", action="store_true", help="a line for each run, on stderr")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write-docs", action="store_true")
    parser.add_argument("--corpus", type=Path, help="pack the judged runs into this folder")
    given = parser.parse_args()
    judged = []
    for seed in map(int, given.seeds.split(",")):
        for scenario in SCENARIOS:
            folder = given.runs / f"{scenario.name}-{seed}"
            if given.only and scenario.name not in given.only:
                continue
            if not (folder / "done").exists():
                if given.no_make:
                    continue
                make_run(scenario, seed, given.runs / "models", folder)
                (folder / "done").touch()
            judged.append(judge(scenario, seed, folder))
            if given.details:
                _tell(judged[-1])
            if given.corpus:
                given.corpus.mkdir(parents=True, exist_ok=True)
                about = {"scenario": scenario.name, "expected": sorted(scenario.expected)}
                pack(RunDirectory(folder), given.corpus / f"{folder.name}.xz", **about)
    print(json.dumps(rows(judged)) if given.json else page(judged))
    if given.write_docs:
        write_docs(page(judged))
    return 0


def _tell(one: Judged) -> None:
    scenario = one.scenario
    missing = scenario.expected - one.rules
    wrong = one.rules - scenario.tolerated
    sys.stderr.write(
        f"{scenario.name}-{one.seed}: {', '.join(sorted(one.rules)) or 'nothing'}"
        + (f"; MISSING {', '.join(sorted(missing))}" if missing else "")
        + (f"; WRONG {', '.join(sorted(wrong))}" if wrong else "")
        + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
