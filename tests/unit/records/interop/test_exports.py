import csv
import html.parser
import json

import httpx
import pytest

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.export import FORMATS, export_run
from training_gym.records.export.opentelemetry import requests
from training_gym.records.export.otlp import post_otlp
from training_gym.records.index import EpisodeQuery, SeriesQuery
from training_gym.records.prometheus import exposition
from training_gym.spec.errors import RecordsError


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_point_and_episode(index, tmp_path):
    files = {path.stem: path for path in export_run(index, "r1", "csv", tmp_path / "out")}
    rows = table(files["metrics"])
    curve = index.series(("r1",), SeriesQuery(names=("reward_mean",)))[0]
    told = [float(row["value"]) for row in rows if row["name"] == "reward_mean"]
    assert told == list(curve.mean)
    assert len(table(files["episodes"])) == index.episodes("r1").total
    assert len(table(files["spans"])) > 6


def test_parquet_says_the_same(index, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    files = {path.stem: path for path in export_run(index, "r1", "parquet", tmp_path / "out")}
    table = parquet.read_table(files["episodes"]).to_pylist()
    rows = index.episodes("r1", EpisodeQuery(order="oldest", limit=1000)).episodes
    assert [row["reward"] for row in table] == [row.reward for row in rows]
    assert json.loads(table[0]["components"]) == rows[0].components
    assert parquet.read_table(files["metrics"]).num_rows > 100


def test_a_trace_has_every_span_on_its_lane(index, tmp_path):
    (path,) = export_run(index, "r1", "chrome", tmp_path / "out")
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    named = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"engine", "trainer", "reward", "sync"} <= named


def test_atif_keeps_turns_tools_and_tokens(index, tmp_path):
    files = export_run(index, "r1", "atif", tmp_path / "out")
    assert len(files) == index.episodes("r1").total
    found = [json.loads(path.read_text()) for path in files]
    called = next(one for one in found if any("tool_calls" in s for s in one["steps"]))
    assert [step["step_id"] for step in called["steps"]] == list(range(1, len(called["steps"]) + 1))
    step = next(s for s in called["steps"] if "tool_calls" in s)
    known = {call["tool_call_id"] for call in step["tool_calls"]}
    assert {result["source_call_id"] for result in step["observation"]["results"]} <= known
    tokens = sum(s["metrics"]["completion_tokens"] for s in called["steps"] if "metrics" in s)
    assert tokens == called["final_metrics"]["total_completion_tokens"]


class Page(html.parser.HTMLParser):
    """Collects what could act."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def test_a_report_shows_hostile_text_as_text_and_loads_nothing(tmp_path, index):
    shape = DemoShape(kind="hostile", steps=3, groups=2, group_size=2, answer_words=8)
    write_demo_run(tmp_path / "runs", shape, run_id="bad", ended_at=1.8e9)
    (path,) = export_run(index, "bad", "html", tmp_path / "out")
    page = Page()
    page.feed(path.read_text())
    assert not page.tags & {"script", "img", "link", "iframe", "object", "a"}
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name[:2] == "on"]
    assert "onerror=alert(1)" in "".join(page.text)
    assert "default-src 'none'" in path.read_text()


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_is_overwritten(index, tmp_path, format):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    export_run(index, "r1", format, tmp_path / "out")
    with pytest.raises(RecordsError, match="there already"):
        export_run(index, "r1", format, tmp_path / "out")


def test_spans_say_nothing_of_the_conversation_unless_asked(index):
    quiet = json.dumps(list(requests(index, "r1")))
    loud = json.dumps(list(requests(index, "r1", content=True)))
    assert "The answer is" not in quiet
    assert "The answer is" in loud


def test_spans_are_posted_with_their_parents(index):
    received = []

    def take(request):
        received.append(json.loads(request.content))
        return httpx.Response(200 if request.url.path == "/v1/traces" else 404)

    client = httpx.Client(transport=httpx.MockTransport(take))
    assert post_otlp(index, "r1", "http://there/", client=client) == len(received)
    spans = [s for r in received for s in r["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    ids = {span["spanId"] for span in spans}
    assert len(ids) == len(spans)
    assert all(span.get("parentSpanId", span["spanId"]) in ids for span in spans)
    names = {span["name"].split()[0] for span in spans}
    assert names == {"invoke_agent", "chat", "execute_tool"}


def test_spans_are_valid_otlp(index):
    pytest.importorskip("opentelemetry.proto")
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for request in requests(index, "r1", content=True):
        ParseDict(request, ExportTraceServiceRequest())


def test_prometheus_gets_escaped_labels(index, tmp_path):
    shape = DemoShape(kind="hostile", steps=3, groups=0)
    write_demo_run(tmp_path / "runs", shape, run_id="bad", ended_at=1.8e9)
    while index.runs().pending:
        pass
    text = exposition(index, now=1.8e9)
    assert 'training_gym_run_step{run="r1"} 6.0' in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(line.count('"') % 2 == 0 for line in lines)
    assert exposition(index, now=1.9e9) == "\n"
