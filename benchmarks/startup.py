"""How long the front door takes to open, as multiples of starting Python at all.

    .venv/bin/python benchmarks/startup.py [--rounds 15] [--json]

The commands are run in turn, round by round, so that a busy moment of the machine meets all of
them alike; the medians are compared. A new process each time: nothing is warm but the disk cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import training_gym": ["-c", "import training_gym"],
    "training-gym --help": ["-m", "training_gym.cli", "--help"],
    "training-gym runs list": ["-m", "training_gym.cli", "runs", "list"],
}
BASE = "python -c pass"


def seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - begin


def measure(rounds: int) -> dict[str, float]:
    """Median seconds of each command over interleaved rounds, after one that warms the disk."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(rounds + 1):
        for name, arguments in COMMANDS.items():
            lasted = seconds(arguments)
            if number:
                taken[name].append(lasted)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    medians = measure(options.rounds)
    rows = [
        {"command": name, "median_s": median, "multiple": median / medians[BASE]}
        for name, median in medians.items()
    ]
    if options.json:
        print(json.dumps({"schema": "benchmark.startup/1", "rounds": options.rounds, "rows": rows}))
        return
    for row in rows:
        print(f"{row['command']:<24}{row['median_s'] * 1000:7.0f} ms{row['multiple']:7.1f} ×")


if __name__ == "__main__":
    main()
