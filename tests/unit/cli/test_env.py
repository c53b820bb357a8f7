"""`env run`: episodes of a definition, played by a model of this machine or by a server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from training_gym.cli.entry import run
from training_gym.cli.schemas import SCHEMAS
from training_gym.testing.tiny import tiny_model

DEFINITION = """
from training_gym import Outcome, Recipe, Score, TrainConfig


class Echo:
    async def run(self, task, policy, ctx):
        reply = await policy.chat(task.prompt)
        if task.answer == "lose":
            raise OSError("gone")
        await ctx.policy("critic").chat([*task.prompt, reply, *task.prompt])
        return Outcome(score=Score(value=float(len(reply.text) > 0)))


def rows(*answers):
    return [{{"prompt": f"Say {{a}}.", "answer": a}} for a in answers]


config = TrainConfig(
    model={model!r},
    dataset=rows("this", "that"),
    environment=Echo(),
    recipe=Recipe(max_response_tokens=6),
)
losing = config.changed(dataset=rows("lose"))
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "home"))
    model = tiny_model(tmp_path / "tiny")
    path = tmp_path / f"echo_{abs(hash(tmp_path))}.py"
    path.write_text(DEFINITION.format(model=str(model)))
    return path


@pytest.fixture
def server():
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            message = {"role": "assistant", "content": body["messages"][-1]["content"][::-1]}
            answer = {"choices": [{"message": message, "finish_reason": "stop"}]}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}/v1", asked
    made.shutdown()
    thread.join()
    made.server_close()


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_local_model_plays_and_json_tells_everything(file, capfd):
    assert run(["env", "run", f"{file}:config", "-n", "3", "--json"]) == 0
    told = lines(capfd.readouterr().out)
    assert len(told) == 3
    for episode in told:
        assert set(episode) == {"schema", *SCHEMAS["env.run/1"]}
        assert (episode["status"] in ("finished", "truncated"), episode["tokens"] > 0) == (1, 1)
        assert [m["role"] for m in episode["messages"]] == ["user", "assistant"]
        assert len(episode["conversations"]["critic"]) == 4
    assert told[0]["task"] == told[2]["task"] != told[1]["task"]
    assert told[0]["id"] != told[2]["id"]


def test_a_server_plays_and_people_read_a_transcript(file, server, capfd):
    url, asked = server
    arguments = [
        "env",
        "run",
        f"{file}:config",
        "--episodes",
        "2",
        "--endpoint",
        url,
        "--model",
        "big",
    ]
    assert run(arguments) == 0
    captured = capfd.readouterr()
    assert "user  Say this." in captured.out
    assert "── what policy saw and said" in captured.out
    assert "policy  .siht yaS" in captured.out
    assert "── what critic saw and said" in captured.out
    assert "critic  .siht yaS" in captured.out
    assert "assistant  " not in captured.out
    assert "finished, score 1" in captured.out
    assert "2 episodes, 2 judged, mean score 1" in captured.err
    assert {body["model"] for body in asked} == {"big"}
    assert {body["max_tokens"] for body in asked} == {6}


def test_what_is_asked_wrongly_is_refused(file, capfd):
    assert run(["env", "run", f"{file}:config", "--endpoint", "http://x/v1"]) == 2
    assert "add --model NAME" in capfd.readouterr().err
    assert run(["env", "run", f"{file}:config", "--side", "left"]) == 2
    assert run(["env", "run", f"{file}:config", "--key-env", "KEY"]) == 2
    assert "but no --endpoint is given" in capfd.readouterr().err
    assert run(["env", "run", f"{file}:config", "--endpoint", "desk:80", "--model", "m"]) == 2
    assert "--endpoint = 'desk:80'" in capfd.readouterr().err


def test_if_every_episode_fails_so_does_the_command(file, server, capfd):
    url, _ = server
    arguments = ["env", "run", f"{file}:losing", "--endpoint", url, "--model", "m"]
    assert run(arguments) == 6
    assert "all 4 episodes failed: OSError: gone" in capfd.readouterr().err


def test_a_server_that_is_gone_is_what_the_fix_is_about(file, capfd):
    arguments = [
        "env",
        "run",
        f"{file}:config",
        "--episodes",
        "1",
        "--endpoint",
        "http://127.0.0.1:9/v1",
    ]
    assert run([*arguments, "--model", "m"]) == 6
    told = capfd.readouterr().err
    assert "error: the episode failed: http://127.0.0.1:9/v1 gave no answer" in told
    assert "fix: check that the server runs" in told
