import gzip
import json
import shutil
import threading

import httpx
import pytest

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.documents import read_document
from training_gym.records.index import EpisodeQuery, Index, SeriesQuery
from training_gym.records.readers import read_episodes, read_stream
from training_gym.records.recorder import Recorder
from training_gym.records.remote import Collector, Link, Shipper, issue_write_token
from training_gym.records.remote.collector import Unauthorized
from training_gym.records.remote.wire import Item, pack
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.records.status import run_status
from training_gym.spec.errors import RecordsError

SHAPE = DemoShape(steps=4, groups=2, group_size=3, evaluation_tasks=3, answer_words=10)


@pytest.fixture
def there(tmp_path):
    """The run as the collector's machine knows it."""
    manifest = Manifest(run_id="r1", created_at=1.0e9, run={"model": "m", "recipe": {}})
    return RunDirectory.create(tmp_path / "there" / "r1", manifest)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return write_demo_run(tmp_path_factory.mktemp("demo"), SHAPE, run_id="r1", ended_at=1.8e9)


@pytest.fixture
def here(tmp_path, recorded):
    return RunDirectory(shutil.copytree(recorded.path, tmp_path / "here" / "r1"))


def shipper(here, there, token, *, fail=lambda: False):
    collector = Collector(there.path.parent)

    def answer(request):
        if fail():
            raise httpx.ConnectError("nobody is there")
        token, name = request.headers["authorization"][7:], request.url.path.partition("/doc")[2]
        try:
            if name:
                name = name.removeprefix("uments/")
                collector.receive_document("r1", token, name, request.content)
                return httpx.Response(200, json={"kept": name})
            got = collector.receive("r1", token, request.content)
        except Unauthorized as error:
            return httpx.Response(401, json={"error": error.message, "fix": error.fix})
        except RecordsError as error:
            return httpx.Response(400, json={"error": error.message, "fix": error.fix})
        return httpx.Response(200, json={"accepted": got.accepted})

    client = httpx.Client(transport=httpx.MockTransport(answer))
    return Shipper(here, Link("http://collector", token), client=client)


def test_what_was_shipped_is_what_was_recorded(here, there, tmp_path):
    token = issue_write_token(there)
    assert shipper(here, there, token).ship() > 100
    assert read_episodes(there) == read_episodes(here)
    for stream in ("metrics", "spans", "logs", "events", "evaluations", "heartbeat"):
        assert read_stream(there, stream) == read_stream(here, stream)
    one, other = (
        Index(tmp_path / place, tmp_path / f"cache-{place}") for place in ("here", "there")
    )
    episode = one.episodes("r1", EpisodeQuery(stream="train")).episodes[0].id
    columns = [i.episode("r1", episode).trajectories[0].columns for i in (one, other)]
    assert columns[0].keys() == columns[1].keys() == {"entropy", "trainer_logprobs", "mismatch"}


def test_nothing_is_taken_twice(here, there):
    token = issue_write_token(there)
    shipper(here, there, token).ship()
    before = {p: p.read_bytes() for p in there.streams.rglob("*") if p.is_file()}
    (here.path / "shipped.json").unlink()
    shipper(here, there, token).ship()
    assert {p: p.read_bytes() for p in there.streams.rglob("*") if p.is_file()} == before


def test_an_outage_loses_nothing(here, there):
    token, calls = issue_write_token(there), iter([False, True, False, True, True])
    sending = shipper(here, there, token, fail=lambda: next(calls, False))
    refusals = 0
    while True:
        try:
            sending.ship()
            break
        except RecordsError as error:
            refusals += "cannot be reached" in error.message
    assert refusals == 3
    assert read_episodes(there) == read_episodes(here)


def test_a_run_is_shipped_while_it_is_written(there, tmp_path):
    here = RunDirectory(tmp_path / "here" / "r1")
    token, stop = issue_write_token(there), threading.Event()
    sending = shipper(here, there, token)
    thread = threading.Thread(target=sending.run_until, args=(stop,))
    thread.start()
    with Recorder(here, writer="engine", attempt=1) as recorder:
        for number in range(200):
            recorder.metrics({"a": number})
    stop.set()
    thread.join(timeout=60)
    assert [r["values"]["a"] for r in read_stream(there, "metrics")] == list(range(200))


@pytest.mark.parametrize("run_id", ["r1", "nobody", "../r1", "", "r1/../r1"])
def test_without_the_token_nothing_is_taken(there, run_id):
    token = issue_write_token(there)
    wrong = "" if run_id == "r1" else token
    with pytest.raises(Unauthorized):
        Collector(there.path.parent).receive(run_id, wrong, b"")


def test_a_new_token_ends_the_old_one(there):
    old = issue_write_token(there)
    new = issue_write_token(there)
    collector = Collector(there.path.parent)
    collector.authorize("r1", new)
    with pytest.raises(Unauthorized):
        collector.authorize("r1", old)
    assert new not in (there.control / "write_token.json").read_text()


GOOD = {"schema": 1, "writer": "w", "attempt": 1, "seq": 0, "time": 1.0, "monotonic": 1.0}


@pytest.mark.parametrize(
    "line",
    [
        {"stream": "metrics", "writer": "../../w", "record": GOOD},
        {"stream": "../metrics", "writer": "w", "record": GOOD},
        {"stream": "metrics", "writer": "w", "record": {**GOOD, "writer": "a/b"}},
        {"stream": "metrics", "writer": "w", "record": {**GOOD, "seq": -1}},
        {"stream": "metrics", "writer": "w", "record": {**GOOD, "schema": 99}},
        {"stream": "metrics", "writer": "w", "record": {**GOOD, "attempt": "1"}},
        {"stream": "metrics", "writer": "w", "record": GOOD, "blocks": "not base64!"},
        {"stream": "metrics", "writer": "w"},
        [],
    ],
)
def test_what_is_no_record_is_refused_whole(there, line):
    token = issue_write_token(there)
    good = {"stream": "metrics", "writer": "w", "record": GOOD}
    body = "\n".join(json.dumps(one) for one in (good, line)).encode()
    with pytest.raises(RecordsError):
        Collector(there.path.parent).receive("r1", token, body)
    assert not there.streams.exists()


def test_bodies_that_swell_are_refused(there):
    token = issue_write_token(there)
    bomb = gzip.compress(b"\n" * (65 * 1024 * 1024))
    assert len(bomb) < 100_000
    with pytest.raises(RecordsError, match="are taken"):
        Collector(there.path.parent).receive("r1", token, bomb)


def test_one_that_is_refused_does_not_hold_up_the_others(here, there):
    token = issue_write_token(there)
    with Recorder(here, writer="late", attempt=1) as recorder:
        for number in range(9):
            recorder.metrics({"late": number})
    (segment,) = (here.streams / "metrics").glob("late-*.jsonl")
    lines = segment.read_text().splitlines()
    lines[4] = lines[4].replace('"monotonic":', '"monotonous":')
    segment.write_text("\n".join(lines) + "\n")
    sending = shipper(here, there, token)
    sending.ship()
    assert sending.refused == 1
    late = [r["values"]["late"] for r in read_stream(there, "metrics") if r["writer"] == "late"]
    assert late == [0, 1, 2, 3, 5, 6, 7, 8]


def test_the_result_arrives_last_and_says_what_became_of_the_run(here, there):
    token, calls = issue_write_token(there), iter([False] * 8 + [True])
    sending = shipper(here, there, token, fail=lambda: next(calls, False))
    with pytest.raises(RecordsError, match="cannot be reached"):
        sending.ship()
    assert not there.result_path.exists()
    sending.ship()
    assert run_status(there) == run_status(here) == "completed"
    assert read_document(there.environment_path) == read_document(here.environment_path)


@pytest.mark.parametrize("name", ["../x.json", "manifest.json", "attempts/1/../../x.json", "a/b"])
def test_only_what_travels_is_kept(there, name):
    token = issue_write_token(there)
    with pytest.raises(RecordsError, match="no document that travels"):
        Collector(there.path.parent).receive_document("r1", token, name, b"{}")


def test_a_link_is_for_its_user_only(here):
    link = Link("http://collector", "s3cret")
    link.keep(here)
    assert Link.of(here) == link
    assert (here.path / "collector.json").stat().st_mode & 0o077 == 0


def test_over_http(there, tmp_path):
    testclient = pytest.importorskip("starlette.testclient")
    from training_gym.records.remote.http import Keys, application

    keys = Keys(may_register={"all"}.__contains__, may_read={"all", "some"}.__contains__)
    client = testclient.TestClient(application(there.path.parent, keys, tmp_path / "seen"))
    manifest = there.manifest_path.read_bytes()
    for wrong in ("", "some"):
        sent = {"Authorization": f"Bearer {wrong}"}
        assert client.post("/api/v1/runs/r1", content=manifest, headers=sent).status_code == 401
    admitted = {"Authorization": "Bearer all"}
    other = manifest.replace(b'"model": "m"', b'"model": "another"')
    assert client.post("/api/v1/runs/r1", content=other, headers=admitted).status_code == 400
    assert client.post("/api/v1/runs/r2", content=manifest, headers=admitted).status_code == 400
    said = client.post("/api/v1/runs/r1", content=manifest, headers=admitted).json()
    token = said["write_token"]
    url, body = (
        "/api/v1/runs/r1/records",
        pack([Item("metrics", "w", {**GOOD, "values": {"a": 1}})]),
    )
    assert client.post(url, content=body).status_code == 401
    bad = {"Authorization": "Bearer nonsense"}
    assert client.post(url, content=body, headers=bad).status_code == 401
    good = {"Authorization": f"Bearer {token}"}
    assert client.post(url, content=body, headers=good).json() == {"accepted": 1, "duplicates": 0}
    assert client.post(url, content=body, headers=good).json() == {"accepted": 0, "duplicates": 1}
    assert client.post(url, content=b"x", headers=good).status_code == 400
    assert client.post(url, content=bytes(17 * 1024 * 1024), headers=good).status_code == 413
    assert client.post("/api/v1/runs/..%2Fr1/records", content=body, headers=good).status_code in (
        401,
        404,
    )
    assert (
        client.put("/api/v1/runs/r1/documents/plan.json", content=b"{}", headers=bad).status_code
        == 401
    )
    assert client.get("/metrics").status_code == 401
    scraped = client.get("/metrics", headers={"Authorization": "Bearer some"})
    assert 'training_gym_run_info{run="r1"' in scraped.text
    assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
    index = Index(tmp_path / "there", tmp_path / "cache")
    assert index.series(("r1",), SeriesQuery(names=("a",), x="time"))[0].mean == (1.0,)
