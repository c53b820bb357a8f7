import pytest

from training_gym.jobs.control import acknowledged, pending, request, requests
from training_gym.records.recorder import Recorder
from training_gym.spec.errors import SpecError


def test_requests_wait_in_order_until_they_are_answered(run):
    assert pending(run) == requests(run) == []
    ids = [request(run, kind) for kind in ("checkpoint", "stop", "stop_now")]
    assert [(asked.id, asked.kind) for asked in pending(run)] == list(
        zip(ids, ("checkpoint", "stop", "stop_now"), strict=True)
    )
    with Recorder(run, writer="runner", attempt=1) as recorder:
        recorder.event("control_acknowledged", id=ids[1], request="stop", outcome="delivered")
        recorder.event("else")
    assert [asked.id for asked in pending(run)] == [ids[0], ids[2]]
    assert acknowledged(run) == {ids[1]: "delivered"}


def test_an_unknown_request_is_refused(run):
    with pytest.raises(SpecError, match="'stopp'") as caught:
        request(run, "stopp")
    assert "did you mean 'stop'?" in caught.value.fix
    assert requests(run) == []


def test_foreign_and_damaged_files_are_passed_over(run):
    run.control.mkdir()
    (run.control / "1-a.json").write_text("{")
    (run.control / "2-b.json").write_text('{"kind": "dance"}')
    (run.control / ".3-c.json.tmp").write_text("{}")
    asked = request(run, "stop")
    assert [found.id for found in requests(run)] == [asked]
