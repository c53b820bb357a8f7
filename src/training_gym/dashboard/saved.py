"""Views kept by name in `$TRAINING_GYM_HOME/dashboard/views.json`, for all who open the home."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

from pydantic import Field

from training_gym.records.documents import read_document_if_any, write_document
from training_gym.spec.errors import RecordsError
from training_gym.spec.settings import Settings

MOST_VIEWS = 200


class SavedView(Settings):
    """A page with its filters."""

    name: str = Field(min_length=1, max_length=60)
    page: Literal["runs", "trajectories", "compare"]
    query: dict[str, str] = Field({}, max_length=40)


class NamedView(Settings):
    """Which one."""

    name: str
    page: str


class SavedViews:
    """The file, changed by one at a time."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path, self._lock = path, threading.Lock()

    def all(self) -> list[SavedView]:
        """Every view, by name; raises `RecordsError` where the file is damaged."""
        document = read_document_if_any(self._path) or {}
        return [SavedView.read(view) for view in document.get("views", [])]

    def keep(self, view: SavedView) -> None:
        """Add it, or replace the one of its name."""
        with self._lock:
            rest = [other for other in self.all() if (other.name, other.page) != _key(view)]
            if len(rest) >= MOST_VIEWS:
                raise RecordsError(f"{MOST_VIEWS} views are kept", fix="forget some first")
            self._write([*rest, view])

    def forget(self, view: NamedView) -> None:
        """Remove it; one that is not there is gone already."""
        with self._lock:
            self._write([o for o in self.all() if (o.name, o.page) != (view.name, view.page)])

    def _write(self, views: list[SavedView]) -> None:
        ordered = sorted(views, key=_key)
        write_document(self._path, {"views": [view.model_dump() for view in ordered]})


def _key(view: SavedView) -> tuple[str, str]:
    return view.name, view.page
