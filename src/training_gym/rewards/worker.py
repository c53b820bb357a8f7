"""A process that runs synchronous rewards: frames in, judgements out.

It is started by `process.RewardProcess`, may be killed at any moment, and ends itself when its
parent does, with all that the user's code has started. What that prints goes to stderr; frames have
a socket of their own.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import threading
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
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # The user's code gets the main thread, because signal handlers work only there.
    threading.Thread(target=_receive, args=(channel, frames), daemon=True).start()
    functions = _load(json.loads(frames.get()), channel)
    while True:
        request = json.loads(frames.get())
        judgements = _judge(functions[request["part"]], request["episodes"])
        send_frame(channel, json.dumps(to_json(judgements)).encode())


def _load(hello: dict[str, Any], channel: socket.socket) -> list[RewardFunction]:
    extend_path(hello["path"])
    try:
        functions = [
            load_function(Code(ref=part["ref"], kwargs=part["kwargs"]), part["name"])
            for part in hello["parts"]
        ]
    except RewardError as error:
        answer: Any = {"error": {"message": error.message, "fix": error.fix}}
        functions = []
    else:
        answer = [
            {"is_group": function.is_group, "is_async": function.is_async} for function in functions
        ]
    send_frame(channel, json.dumps(answer).encode())
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
