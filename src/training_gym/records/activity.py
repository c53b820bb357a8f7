"""What a process is at: a span for each finished piece of work, the open ones in its heartbeats.

The health watchdog reads both. A thread of its own beats, so that a process whose event loop hangs
still tells in what.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from training_gym.records.recorder import Recorder
from training_gym.spec.errors import GymError

BEAT_S = 10.0
"""Seconds between two heartbeats."""


@dataclass(eq=False)
class _Work:
    """A piece of work that is going on."""

    component: str
    what: str
    started: float
    moved: float = field(init=False)
    """When it began, or when work inside it last ended."""
    inner: int = 0
    """Pieces of work inside it that are going on: while there are any, they are what is at work."""

    def __post_init__(self) -> None:
        self.moved = self.started


_outer: ContextVar[_Work | None] = ContextVar("outer_work", default=None)


class Activity:
    """The work of one process. For any number of threads and tasks."""

    def __init__(self, recorder: Recorder, beat_s: float = BEAT_S) -> None:
        """Beat every `beat_s` seconds until closed."""
        self._recorder, self._beat_s = recorder, beat_s
        self._lock = threading.Lock()
        self._open: set[_Work] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    @contextmanager
    def at(self, component: str, what: str = "") -> Iterator[None]:
        """Be at work in a component (see `records.health`), for example on the episode `what`.

        Work may nest, as an environment that asks the policy does: then the inner one counts.
        """
        work, outer = _Work(component, what, time.monotonic()), _outer.get()
        with self._lock:
            self._open.add(work)
            if outer is not None:
                outer.inner += 1
        token = _outer.set(work)
        try:
            yield
        finally:
            _outer.reset(token)
            self._finish(work, outer)

    def watch(self, target: Any, **components: str) -> None:
        """Count calls of `target`'s methods as work: `watch(trainer, step="training")`.

        Replaces them on the instance by ones that do the same; coroutine functions stay such.
        """
        for name, component in components.items():
            setattr(target, name, self.watched(getattr(target, name), component))

    def watched(self, call: Callable[..., Any], component: str) -> Callable[..., Any]:
        """A function that does what `call` does, and counts as work while it does."""
        if inspect.iscoroutinefunction(call):

            @functools.wraps(call)
            async def waited(*args: Any, **kwargs: Any) -> Any:
                with self.at(component, _name(kwargs)):
                    return await call(*args, **kwargs)

            return waited

        @functools.wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self.at(component, _name(kwargs)):
                return call(*args, **kwargs)

        return called

    def open(self) -> list[dict[str, Any]]:
        """For each component at work: seconds since its oldest piece last moved, and how many."""
        now = time.monotonic()
        found: dict[str, list[_Work]] = {}
        with self._lock:
            for work in self._open:
                if not work.inner:
                    found.setdefault(work.component, []).append(work)
            return [
                {
                    "component": component,
                    "age_s": round(now - oldest.moved, 3),
                    "count": len(works),
                    "what": oldest.what,
                }
                for component, works in sorted(found.items())
                for oldest in [min(works, key=lambda work: work.moved)]
            ]

    def close(self) -> None:
        """Beat no more."""
        self._closing.set()
        self._thread.join()

    def _finish(self, work: _Work, outer: _Work | None) -> None:
        end = time.monotonic()
        with self._lock:
            self._open.discard(work)
            if outer is not None:
                outer.inner -= 1
                outer.moved = end
        fields: dict[str, Any] = {"what": work.what} if work.what else {}
        with suppress(GymError):  # see `_beat`
            self._recorder.span(
                work.component, work.started, end, component=work.component, **fields
            )

    def _beat(self) -> None:
        while True:
            with suppress(GymError):  # a full disk: whoever must not lose a record meets it
                self._recorder.heartbeat(open=self.open())
            if self._closing.wait(self._beat_s):
                return


def _name(arguments: dict[str, Any]) -> str:
    session = arguments.get("session")
    return session if isinstance(session, str) else ""
