"""A process that runs synchronous rewards: frames in, judgements out.

It is started by `process.RewardProcess`, may be killed at any moment, and ends itself when its
parent does, with all that the user's code has started. What that prints goes to stderr; frames have
a socket of their own. A copy of the process that the user's code forks has no part in that socket,
and ends where it would answer.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from training_gym.rewards.channel import receive_frame, send_frame
from training_gym.rewards.faults import describe_error
from training_gym.rewards.functions import RewardFunction, extend_path, load_function
from training_gym.rewards.judgement import Judgement, failed, to_json
from training_gym.rewards.returned import read_group, read_returned
from training_gym.rewards.supervision import die_with, fork_supervised
from training_gym.rewards.view import read_episode
from training_gym.spec.code import Code
from training_gym.spec.errors import RewardError


def main(descriptor: int, parent: int) -> None:
    """Serve until the other side of the socket is gone."""
    os.dup2(2, 1)
    os.set_inheritable(descriptor, False)
    parent = fork_supervised(parent)
    if not die_with(parent):
        _end()
    channel = socket.socket(fileno=descriptor)
    worker = os.getpid()
    os.register_at_fork(after_in_child=channel.close)
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # The user's code gets the main thread, because signal handlers work only there.
    threading.Thread(target=_receive, args=(channel, frames), daemon=True).start()

    def answer(data: Any) -> None:
        if os.getpid() != worker:
            os._exit(0)
        send_frame(channel, json.dumps(data).encode())

    functions = _load(json.loads(frames.get()), answer)
    while True:
        request = json.loads(frames.get())
        judgements = _judge(functions[request["part"]], request["episodes"])
        answer(to_json(judgements))


def _load(hello: dict[str, Any], answer: Callable[[Any], None]) -> list[RewardFunction]:
    extend_path(hello["path"])
    try:
        functions = [
            load_function(Code(ref=part["ref"], kwargs=part["kwargs"]), part["name"])
            for part in hello["parts"]
        ]
    except RewardError as error:
        answer({"error": {"message": error.message, "fix": error.fix}})
        return []
    answer(
        [{"is_group": function.is_group, "is_async": function.is_async} for function in functions]
    )
    return functions


def _judge(function: RewardFunction, episodes: list[Any]) -> list[Judgement]:
    given = [read_episode(data) for data in episodes]
    try:
        if function.is_group:
            return read_group(function.call(given), len(given))
        return [read_returned(function.call(episode)) for episode in given]
    # The boundary to the user's code; `sys.exit` in a reward is an error like any other.
    except BaseException as error:  # noqa: BLE001
        return [failed("raised", f"raised {describe_error(error)}")] * len(given)


def _receive(channel: socket.socket, frames: queue.SimpleQueue[bytes]) -> None:
    while True:
        try:
            frame = receive_frame(channel, socket.socket.recv)
        except OSError:
            frame = None
        if frame is None:
            _end()
        else:
            frames.put(frame)


def _end() -> None:
    """End this process and whatever the user's code started in its group."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
