"""Prometheus scrapes `/metrics` with a key; nobody else gets anything."""

from typing import Any

import pytest


def samples(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_whoever_has_a_key_scrapes_runs(reader: Any, role: str) -> None:
    while reader.api("runs")["pending"]:
        pass
    answer = reader.ask("/metrics", role=role)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert answer.headers["cache-control"] == "no-store"
    found = samples(answer.body.decode())
    assert 'training_gym_run_step{run="good"} 4.0' in found
    assert any(line.startswith("training_gym_metric{") and "reward" in line for line in found)
    assert all(line.startswith("training_gym_") for line in found)


@pytest.mark.parametrize("key", [None, "Bearer wrong"])
def test_without_a_key_nothing_is_told(reader: Any, key: str | None) -> None:
    headers = {} if key is None else {"authorization": key}
    answer = reader.ask("/metrics", role=None, **headers)
    assert answer.status == 401
    assert b"training_gym" not in answer.body


def test_it_cannot_be_written_to(reader: Any) -> None:
    assert reader.ask("/metrics", method="POST", body={}).status in (403, 405)
