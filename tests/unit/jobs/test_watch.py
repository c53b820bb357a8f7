"""The job runner's watch over a run that is played by hand."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from training_gym.jobs import control, watch, webhooks
from training_gym.jobs.watch import HealthWatch
from training_gym.records.health import assess, replay
from training_gym.records.readers import read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import Counters
from training_gym.spec.health import Health, Webhook

SICK = {"truncated_share": 0.9, "reward_mean": 0.5}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watch, "PERIOD_S", 0.02)
    monkeypatch.setattr(watch, "SETTLED_S", 0.1)


@pytest.fixture
def new_run(tmp_path):
    def make(**health):
        spec = {"model": "tiny", "health": Health(**health).model_dump(mode="json")}
        manifest = Manifest(run_id="r1", created_at=1.0, run=spec)
        made = RunDirectory.create(tmp_path / "r1", manifest)
        made.attempt(1).mkdir(parents=True)
        return made

    return make


def steps(run, first, last, attempt=1, **values):
    with Recorder(run, writer="engine", attempt=attempt) as engine:
        for number in range(first, last + 1):
            engine.metrics({**SICK, **values}, Counters(batch=number))


def told(run):
    return [(a["rule"], a["state"], a["severity"]) for a in read_stream(run, "alerts")]


def test_the_watch_writes_what_a_replay_gives(new_run):
    run = new_run()
    watching = HealthWatch(run, 1)
    steps(run, 1, 4)
    while not told(run):
        time.sleep(0.02)
    steps(run, 5, 30, truncated_share=0.0)
    watching.close()
    assert told(run)[0] == ("truncation", "open", "critical")
    recorded = {a["id"]: a["state"] for a in read_stream(run, "alerts")}
    assert recorded == {alert.id: alert.state for alert in replay(run)}
    assert read_stream(run, "events")[0]["kind"] == "health_started"
    assert assess(run).alerts[0].state == "resolved"


def test_another_attempt_does_not_tell_again_what_was_told(new_run):
    run = new_run()
    steps(run, 1, 5)
    HealthWatch(run, 1).close()
    assert len(told(run)) == 1
    steps(run, 6, 7, attempt=2)
    HealthWatch(run, 2).close()
    assert len(told(run)) == 1


def test_what_a_killed_watch_missed_is_told_by_the_next(new_run):
    run = new_run()
    steps(run, 1, 5)  # nobody watched
    HealthWatch(run, 2).close()
    assert told(run) == [("truncation", "open", "critical")]


@pytest.mark.parametrize(
    ("action", "kinds"),
    [("checkpoint", ["checkpoint"]), ("pause", ["checkpoint", "pause"]), ("stop", ["stop"])],
)
def test_a_critical_alert_acts_once_where_the_definition_says_so(new_run, action, kinds):
    run = new_run(actions={"truncation": action})
    steps(run, 1, 9)
    HealthWatch(run, 1).close()
    assert [asked.kind for asked in control.requests(run)] == kinds
    acted = [event for event in read_stream(run, "events") if event["kind"] == "health_acted"]
    assert [(event["alert"], event["action"]) for event in acted] == [
        ("truncation/single_turn/1", action)
    ]


def test_nothing_acts_by_itself(new_run):
    run = new_run()
    steps(run, 1, 9)
    HealthWatch(run, 1).close()
    assert control.requests(run) == []


def test_a_watch_that_breaks_says_so_and_harms_nothing(new_run, monkeypatch, capfd):
    run = new_run()

    def broken(*_):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(watch, "facts_of", broken)
    HealthWatch(run, 1).close()
    assert "health is no longer watched" in capfd.readouterr().err


class Receiver:
    """A chat service that answers with what it is told to."""

    def __init__(self, *answers):
        self.messages, self.answers = [], list(answers)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.messages.append(json.loads(body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/secret"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    made = []

    def make(*answers):
        made.append(Receiver(*answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(webhooks, "DELAYS_S", (0.0, 0.01, 0.01, 0.01))


def failures(run):
    return [event for event in read_stream(run, "events") if event["kind"] == "webhook_failed"]


def test_a_webhook_hears_of_alerts_and_is_tried_again(new_run, receiver, impatient):
    chat = receiver(503, 429)
    run = new_run(webhooks=(Webhook(url=chat.url),))
    steps(run, 1, 4)
    HealthWatch(run, 1).close()
    assert len(chat.messages) == 3
    assert chat.messages[-1]["schema"] == "health.alert/1"
    assert chat.messages[-1]["run_id"] == "r1"
    assert chat.messages[-1]["text"].startswith("critical: r1: 90% of the episodes were cut off")
    assert chat.messages[-1]["alert"]["rule"] == "truncation"
    assert failures(run) == []


def test_a_refusal_is_not_tried_again_and_its_address_not_told(new_run, receiver, impatient):
    chat = receiver(403)
    run = new_run(webhooks=(Webhook(url=chat.url),))
    steps(run, 1, 4)
    HealthWatch(run, 1).close()
    (failed,) = failures(run)
    assert (failed["host"], failed["failure"]) == ("127.0.0.1", "status 403")
    assert "secret" not in json.dumps(failed)


def test_a_webhook_hears_only_of_what_is_severe_enough(new_run, receiver, impatient):
    chat = receiver()
    run = new_run(webhooks=(Webhook(url=chat.url, severity="critical"),))
    steps(run, 1, 4, truncated_share=0.3)
    HealthWatch(run, 1).close()
    assert chat.messages == []


def test_an_address_may_be_a_secret(new_run, receiver, impatient, monkeypatch):
    chat = receiver()
    monkeypatch.setenv("CHAT_URL", chat.url)
    run = new_run(webhooks=(Webhook(url_secret="CHAT_URL"), Webhook(url_secret="NO_SUCH")))
    steps(run, 1, 4)
    HealthWatch(run, 1).close()
    assert len(chat.messages) == 1
    assert [failed["failure"] for failed in failures(run)] == [
        "no address: its variable is not set"
    ]


def test_a_dead_receiver_never_holds_up_the_watch(new_run, impatient, monkeypatch):
    monkeypatch.setattr(webhooks, "LAST_CHANCE_S", 0.1)
    run = new_run(webhooks=(Webhook(url="http://127.0.0.1:9/"),))
    steps(run, 1, 4)
    HealthWatch(run, 1).close()
    assert told(run) == [("truncation", "open", "critical")]
