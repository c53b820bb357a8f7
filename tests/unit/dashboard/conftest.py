"""A small home with demo runs, and a way to ask the application without a socket."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from training_gym.dashboard.access import Access
from training_gym.dashboard.application import build
from training_gym.dashboard.assets import WebApp
from training_gym.dashboard.saved import SavedViews
from training_gym.dashboard.state import ServerState
from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.index import Index

SECRET = b"s" * 32
SHAPE = DemoShape(
    kind="healthy", steps=4, groups=2, group_size=3, evaluate_every=2, evaluation_tasks=4
)


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def json(self) -> Any:
        """The body as plain data."""
        return json.loads(self.body)


@dataclass
class Server:
    """One application and how to ask it."""

    home: Path
    access: Access = field(default_factory=lambda: Access(SECRET, owner="ada"))
    hosts: tuple[str, ...] = ("localhost",)

    def __post_init__(self) -> None:
        """Build the application once."""
        folder = self.home / "dashboard"
        self.state = ServerState(
            index=Index(self.home / "runs", self.home / "cache"),
            runs=self.home / "runs",
            folder=folder,
            views=SavedViews(folder / "views.json"),
            access=self.access,
        )
        self.app = build(self.state, app=WebApp(self.home / "app"), hosts=self.hosts)

    def changed(self, **values: Any) -> Server:
        """The same home with another access."""
        return Server(self.home, replace(self.access, **values), self.hosts)

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        role: str | None = "editor",
        body: Any = None,
        content: bytes | None = None,
        **headers: str,
    ) -> Answer:
        """One request; `role`: whose key it carries."""
        sent = {"host": "localhost", **{k.replace("_", "-"): v for k, v in headers.items()}}
        if role is not None:
            sent["authorization"] = f"Bearer {self.access.key(role)}"  # type: ignore[arg-type]
        if body is not None:
            content = json.dumps(body).encode()
        if content is not None:
            sent.setdefault("content-type", "application/json")
        return asyncio.run(self._ask(method, path, sent, content))

    def api(self, path: str, **options: Any) -> Any:
        """The JSON of an answer that must be good."""
        answer = self.ask(f"/api/v1/{path}", **options)
        assert answer.status == 200, answer.body
        return answer.json

    async def _ask(
        self, method: str, path: str, headers: dict[str, str], content: bytes | None
    ) -> Answer:
        transport = httpx.ASGITransport(app=self.app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            got = await client.request(method, path, headers=headers, content=content)
        return Answer(got.status_code, got.headers, got.content)


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    runs = home / "runs"
    write_demo_run(runs, SHAPE, run_id="good")
    write_demo_run(runs, SHAPE.changed(kind="hostile", steps=2), run_id="hostile")
    app = home / "app"
    (app / "assets").mkdir(parents=True)
    (app / "index.html").write_text("<!doctype html><title>Training Gym</title>")
    (app / "assets" / "index-abc.js").write_text("1;" * 2000)
    return home


@pytest.fixture
def server(demo_home: Path, tmp_path: Path) -> Server:
    """A copy of its own: tests may annotate."""
    shutil.copytree(demo_home, tmp_path / "home")
    return Server(tmp_path / "home")


@pytest.fixture(scope="session")
def reader(demo_home: Path) -> Server:
    """For tests that change nothing."""
    return Server(demo_home)
