"""Runs a generator in a process of its own: a request on stdin, one entry a line on stdout."""

from __future__ import annotations

import json
import os
import random
import sys

from training_gym.data.entries import create_generator, encode_entry
from training_gym.spec.errors import GymError


def main() -> None:
    """Write the entries, or one line with the error."""
    request = json.load(sys.stdin)
    # Generators may print; what they print must not end among the entries.
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    random.seed(request["seed"])
    try:
        generator = create_generator(**request)
        for index in range(request["size"]):
            out.write(json.dumps(encode_entry(generator[index])) + "\n")
    except GymError as error:
        out.write(json.dumps({"error": {"message": error.message, "fix": error.fix}}) + "\n")
    out.close()


if __name__ == "__main__":
    main()
