"""Steps recorded on an accelerator and replayed: one launch instead of hundreds.

A recorded step repeats its kernels with the very addresses and sizes it was recorded with. Whoever
records sees to it that only the contents of buffers differ from one replay to the next, and drops
what was recorded when a buffer has moved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch

from training_gym.planning.memory import GRAPHS_KEPT

Step = Callable[[], None]


class CaptureFailedError(RuntimeError):
    """A step cannot be recorded here. Never leaves the network, which computes it otherwise."""


class Recorder(Protocol):
    """Records what a step does to the device."""

    def record(self, step: Step) -> Step:
        """What repeats the step; its result is there as if it had been called.

        Raises `torch.OutOfMemoryError`, or another `RuntimeError` where it cannot be recorded.
        """
        ...

    def forget(self) -> None:
        """Nothing recorded so far will be repeated any more."""
        ...


class Graphs:
    """Recorded steps by their shape, the least used one given up for another.

    A shape is recorded when it comes for the second time. The first time its step just runs, which
    also makes what a step finds at hand from then on: kernels, workspaces, rows of the cache.
    """

    def __init__(self, recorder: Recorder, *, most: int = GRAPHS_KEPT) -> None:
        """Keep `most` steps at once."""
        self._recorder = recorder
        self._most = most
        self._seen: set[Hashable] = set()
        self._recorded: OrderedDict[Hashable, Step] = OrderedDict()
        self.pauses = False
        """Whether steps just run, as if they could not be recorded."""
        self.num_recorded = 0
        self.num_replayed = 0

    def run(self, shape: Hashable, step: Step) -> None:
        """Do what `step` does; it must do the same whenever it is given with this shape.

        Raises `CaptureFailedError` where it cannot be recorded, `torch.OutOfMemoryError` where
        memory runs out. Nothing is recorded then.
        """
        if self.pauses:
            step()
        elif shape in self._recorded:
            self._recorded.move_to_end(shape)
            self.num_replayed += 1
            self._recorded[shape]()
        elif shape in self._seen:
            self._record(shape, step)
        else:
            self._seen.add(shape)
            step()

    def drop(self) -> None:
        """Forget all that is recorded: what it reads or writes is about to move."""
        self._seen.clear()
        if self._recorded:
            self._recorded.clear()
            self._recorder.forget()

    def _record(self, shape: Hashable, step: Step) -> None:
        try:
            repeated = self._recorder.record(step)
        except RuntimeError as error:
            self.drop()
            self._recorder.forget()  # also where this was the first one to be recorded
            if (exhausted := _exhausted(error)) is not None:
                raise exhausted from error
            raise CaptureFailedError(_reason(error)) from error
        self.num_recorded += 1
        self._recorded[shape] = repeated
        while len(self._recorded) > self._most:
            self._recorded.popitem(last=False)


class CudaRecorder:
    """Implements `Recorder` by CUDA graphs that share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        """Record on `device`."""
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None

    def record(self, step: Step) -> Step:
        """See `Recorder`.

        It runs once on the stream that is recorded, which therefore has its workspaces when the
        recording begins. A recording that fails leaves that stream the current one: hence the outer
        context. Of other threads nothing is forbidden meanwhile.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            if self._stream is None:
                self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            before = torch.cuda.current_stream()
            self._stream.wait_stream(before)
            with torch.cuda.stream(self._stream):
                step()
                with torch.cuda.graph(
                    graph,
                    pool=self._pool,
                    stream=self._stream,
                    capture_error_mode="thread_local",
                ):
                    step()
            before.wait_stream(self._stream)
        return graph.replay

    def forget(self) -> None:
        """See `Recorder`. A pool that no graph uses any more cannot be used again."""
        self._pool = None


def recorder_on(device: torch.device, *, wanted: bool) -> Recorder | None:
    """What records steps on `device`; None where nothing does, or it is not `wanted`."""
    return CudaRecorder(device) if wanted and device.type == "cuda" else None


def _exhausted(error: BaseException | None) -> torch.OutOfMemoryError | None:
    """The failed allocation behind an error: ending the recording it failed in may raise, too."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _reason(error: RuntimeError) -> str:
    """The first error's first line: what came while the recording ended says less."""
    first: BaseException = error
    while (before := first.__cause__ or first.__context__) is not None:
        first = before
    return str(first).partition("\n")[0] or type(first).__name__
