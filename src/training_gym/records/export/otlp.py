"""OpenTelemetry spans of a run as OTLP: a line of JSON for each request, or posted."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from training_gym.records.export.opentelemetry import requests
from training_gym.records.index import Index
from training_gym.spec.errors import RecordsError


def write_otlp(index: Index, run_id: str, folder: Path) -> tuple[Path, ...]:
    """`traces.jsonl`, without what was said."""
    path = folder / "traces.jsonl"
    with open(path, "x", encoding="utf-8") as file:
        for request in requests(index, run_id):
            file.write(json.dumps(request) + "\n")
    return (path,)


def post_otlp(
    index: Index,
    run_id: str,
    endpoint: str,
    *,
    content: bool = False,
    client: httpx.Client | None = None,
) -> int:
    """Post all spans to `endpoint` (its `/v1/traces`); how many requests that took.

    The same episode always gets the same trace id, so that posting twice adds nothing where the
    receiver keys by it. Raises `RecordsError` where it cannot be reached or refuses.
    """
    url = f"{endpoint.rstrip('/')}/v1/traces"
    count = 0
    with client or httpx.Client(timeout=30.0) as session:
        for request in requests(index, run_id, content=content):
            try:
                session.post(url, json=request).raise_for_status()
            except httpx.HTTPError as error:
                raise RecordsError(
                    f"{url} does not take spans: {error}",
                    fix="name the receiver's base address, such as http://localhost:4318",
                ) from error
            count += 1
    return count
