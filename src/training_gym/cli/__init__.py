"""The command line: data on stdout, talk on stderr, one file per verb.

Nothing here imports the specs, pydantic or rich before a command needs them: `--help` answers
at once, on a machine without torch too.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    import sys

    from training_gym.cli.entry import run

    sys.exit(run(sys.argv[1:]))
