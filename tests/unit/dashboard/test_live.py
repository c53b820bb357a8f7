import asyncio
import json
import time
from typing import Any

from training_gym.dashboard.live import ALL, Watch, _events
from training_gym.records.annotations import add_note
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.episodes import Counters


def add_metric(server: Any, batch: int, value: float) -> None:
    run = RunDirectory(server.home / "runs" / "good")
    with Recorder(run, writer=f"late{batch}", attempt=1) as recorder:
        recorder.metrics({"reward_mean": value}, Counters(batch=batch, optimizer_step=batch))


def test_asking_again_gives_only_what_is_new(server: Any) -> None:
    begin = server.api("changes?run=good")
    assert begin["deltas"] == []
    add_metric(server, 5, 0.5)
    after = server.api(f"changes?run=good&after={begin['cursor']}")
    (delta,) = after["deltas"]
    assert [record["values"] for record in delta["metrics"]] == [{"reward_mean": 0.5}]
    assert server.api(f"changes?run=good&after={after['cursor']}")["deltas"] == []


def test_a_cursor_holds_across_servers(server: Any) -> None:
    cursor = server.api("changes?run=good")["cursor"]
    add_metric(server, 6, 0.6)
    other = type(server)(server.home)
    assert len(other.api(f"changes?run=good&after={cursor}")["deltas"]) == 1


def test_a_list_hears_of_rows_that_changed(server: Any) -> None:
    index = server.state.index
    while index.runs().pending:
        pass
    watch = Watch.of([ALL], "")
    assert watch.look(index) == []
    add_note(RunDirectory(server.home / "runs" / "good"), "looked at")
    deadline, changed = time.monotonic() + 20, []
    while not changed and time.monotonic() < deadline:
        changed = [delta["run"].run_id for delta in watch.look(index)]
    assert changed == ["good"]


def test_the_stream_carries_deltas_with_the_cursor_as_id(server: Any) -> None:
    async def listen() -> list[bytes]:
        watch = Watch.of(["good"], "")
        watch.look(server.state.index)
        add_metric(server, 8, 0.8)
        heard = []
        async for event in _events(server.state, watch):
            heard.append(event)
            if event.startswith(b"event: delta"):
                server.state.closing.set()
        return heard

    heard = asyncio.run(listen())
    (delta,) = (event for event in heard if event.startswith(b"event: delta"))
    fields = dict(line.split(b": ", 1) for line in delta.strip().split(b"\n"))
    assert json.loads(fields[b"data"])["metrics"][0]["values"] == {"reward_mean": 0.8}
    assert Watch.of(["good"], fields[b"id"].decode()).cursors["good"]
    assert not server.state.streams


def test_too_many_streams_are_sent_away(reader: Any, monkeypatch: object) -> None:
    from training_gym.dashboard import live

    reader.state.streams.update(object() for _ in range(live.MOST_STREAMS))
    try:
        assert reader.ask("/api/v1/stream?run=good").status == 503
    finally:
        reader.state.streams.clear()
