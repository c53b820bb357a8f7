"""A job whose run has a collector: what it records lies there when it has ended."""

import socket
import threading

import pytest

from training_gym.records import remote
from training_gym.records.readers import read_stream
from training_gym.records.results import read_result
from training_gym.records.run_directory import RunDirectory

uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture
def collector(tmp_path):
    """The address of a collector in this process, and the folder it writes to."""
    from training_gym.records.remote.http import Keys, application

    keys = Keys(may_register="k".__eq__, may_read="k".__eq__)
    app = application(tmp_path / "there", keys, tmp_path / "cache")
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", tmp_path / "there"
        server.should_exit = True
        thread.join()


def test_what_a_job_records_reaches_its_collector(run, run_here, collector):
    url, folder = collector
    remote.register(run.manifest, url, "k").keep(run)
    assert run_here() == 0
    there = RunDirectory(folder / "r1")
    assert read_result(there) == read_result(run)
    for stream in ("logs", "events", "heartbeat"):
        assert read_stream(there, stream) == read_stream(run, stream) != []


def test_a_collector_that_is_gone_does_not_hold_up_the_job(run, run_here, capsys):
    remote.Link("http://127.0.0.1:9", "token").keep(run)
    assert run_here() == 0
    assert read_result(run).status == "completed"
    assert "send what waits: training-gym sync r1 --to collector" in capsys.readouterr().err


def test_an_environment_names_the_collector(run, collector):
    url, folder = collector
    environ = {remote.link.ADDRESS: url + "/", remote.link.KEY: "k"}
    assert remote.asked_for(run.manifest, environ).url == url
    assert RunDirectory(folder / "r1").manifest == run.manifest
    assert remote.asked_for(run.manifest, {}) is None
    with pytest.raises(remote.Refused, match="may not register"):
        remote.asked_for(run.manifest, {**environ, remote.link.KEY: "wrong"})
    with pytest.raises(remote.Unreachable):
        remote.asked_for(run.manifest, {remote.link.ADDRESS: "http://127.0.0.1:9"})
