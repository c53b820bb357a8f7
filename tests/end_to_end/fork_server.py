"""Plays attempts of runs, each in a fork of a process that has imported everything already.

One JSON object a line on stdin: `run` (directory), `attempt`, `kill_after_s` (None: never). The
answer, a line on stdout: `killed`, `code`, `seconds`.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import peft  # noqa: F401 - warm in every fork
import transformers.models.llama.modeling_llama  # noqa: F401

from training_gym.engines.local import assembly, inside  # noqa: F401


def play(run: str, attempt: int) -> int:
    os.environ.update(TRAINING_GYM_RUN=run, TRAINING_GYM_ATTEMPT=str(attempt))
    Path(run, "attempts", str(attempt)).mkdir(parents=True)
    return inside.main()


def fork(run: str, attempt: int, kill_after_s: float | None) -> dict:
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        try:
            code = play(run, attempt)
        except BaseException:  # noqa: BLE001 - the boundary of the forked process
            traceback.print_exc()
            code = 99
        os._exit(code)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return {
        "killed": os.WIFSIGNALED(status),
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - started,
    }


for line in sys.stdin:
    print(json.dumps(fork(**json.loads(line))), flush=True)
