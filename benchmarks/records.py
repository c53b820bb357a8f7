"""What recording costs, and how fast the index answers, beside TensorBoard, trackio and Aim.

    python benchmarks/records.py [--scale 1.0] [--runs 1000] [NAME...]

Names: recording, runs, points, episodes, rebuild, lag; all without one. `--scale 1` are the sizes
of the requirements: 10,000 steps × 100 metrics, 100,000 episodes. Answers are medians of five, the
processor's time beside the wall's, since other work may share the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.demo.course import moment
from training_gym.records.demo.plays import Player
from training_gym.records.index import EpisodeQuery, Index, Range, RunQuery, SeriesQuery
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import Manifest, RunDirectory
from training_gym.spec.episodes import Counters

REPEATS = 5
POINTS = 1500


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Median milliseconds of wall and of this process's processor time."""
    walls, cpus = [], []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * (time.process_time() - cpu))
    return statistics.median(walls), statistics.median(cpus)


def tell(what: str, work: Callable[[], object], limit: str = "") -> float:
    wall, cpu = timed(work)
    print(f"  {what:<52}{wall:9.1f} ms{cpu:9.1f} ms cpu  {limit}", flush=True)
    return wall


def new_run(runs: Path, run_id: str) -> RunDirectory:
    spec = {"model": "bench", "recipe": {"num_steps": 10_000}}
    return RunDirectory.create(
        runs / run_id, Manifest(run_id=run_id, created_at=time.time(), run=spec)
    )


def recording(home: Path, scale: float) -> None:
    """A step's 1,000 metrics and 64 episodes: what the loop waits, and what the thread works."""
    run = new_run(home / "runs", "recording")
    shape = DemoShape(groups=8, group_size=8, answer_words=200)
    player = Player(shape)
    from random import Random

    now = moment(shape, 20, Random(0))
    plays = [
        play.episode
        for number in range(8)
        for play in player.group(
            player.task(number), f"0-{number}", now, Counters(batch=0), stream="train", size=8
        )
    ]
    metrics = {f"layers/{number}/norm": number * 0.1234567 for number in range(1000)}
    waits, works = [], []
    with Recorder(run, writer="engine", attempt=1) as recorder:
        for step in range(max(10, int(40 * scale))):
            cpu, wall = time.process_time(), time.perf_counter()
            recorder.metrics(metrics, Counters(batch=step))
            for episode in plays:
                recorder.episode(episode)
            waits.append(1000 * (time.perf_counter() - wall))
            recorder.flush()
            works.append(1000 * (time.process_time() - cpu))
    wait, work = statistics.median(waits), statistics.median(works)
    print(f"  {'the loop waits':<52}{wait:9.1f} ms a step: 1 % of a step of {wait / 10:.1f} s")
    print(f"  {'processor, its own thread included':<52}{work:9.1f} ms a step: {work / 10:.1f} s")


def runs(home: Path, count: int) -> None:
    """A list of many runs: the first one ever, then warm, then in a new process's index."""
    template = write_demo_run(
        home / "runs", DemoShape(steps=20, groups=1, group_size=4), run_id="run-0"
    )
    _copies(template, home / "runs", count)
    index = Index(home / "runs", home / "cache")
    started = time.perf_counter()
    page, listings = index.runs(), 1
    first = time.perf_counter() - started
    while page.pending:
        page, listings = index.runs(), listings + 1
    whole = time.perf_counter() - started
    print(f"  {f'first listing of {count} runs nobody has indexed':<52}{1000 * first:9.1f} ms")
    print(f"  {f'until all are indexed ({listings} listings)':<52}{whole:9.1f} s")
    tell(f"list {count} runs, warm", lambda: index.runs(RunQuery(limit=100)), "<= 200")
    tell(
        f"list {count} runs, a new process",
        lambda: Index(home / "runs", home / "cache").runs(RunQuery(limit=100)),
        "<= 200",
    )
    index.close()


def _copies(template: RunDirectory, folder: Path, count: int) -> None:
    import shutil

    for number in range(1, count):
        made = folder / f"run-{number}"
        shutil.copytree(template.path, made)
        for name in ("manifest.json", "result.json"):
            text = (made / name).read_text().replace('"run-0"', f'"run-{number}"')
            (made / name).write_text(text)


def points(home: Path, scale: float) -> None:
    """10,000 steps of 100 metrics: the overview's charts, one chart, all charts."""
    steps = max(100, int(10_000 * scale))
    shape = DemoShape(steps=steps, groups=0, metrics=100, spans=False, logs=False, evaluate_every=0)
    run = write_demo_run(home / "runs", shape, run_id="points")
    size = _size(run.streams / "metrics")
    index = Index(home / "runs", home / "cache")
    started = time.perf_counter()
    index.refresh("points")
    taken = time.perf_counter() - started
    print(f"  {f'index {steps * 100:,} points ({size:.0f} MB)':<52}{1000 * taken:9.1f} ms")
    shown = index.overview("points").metrics
    ours = tell(
        f"the {len(shown)} charts of the overview",
        lambda: index.series(("points",), SeriesQuery(names=shown, max_points=POINTS)),
        "<= 300",
    )
    tell(
        "all 100 charts",
        lambda: index.series(("points",), SeriesQuery(names=("*",), max_points=POINTS)),
    )
    tell("overview", lambda: index.overview("points"))
    index.close()
    _tensorboard(run, home, shown, ours)
    _trackio(run, home, shown, ours)
    _aim(run, home, shown, ours)


def _size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _tensorboard(run: RunDirectory, home: Path, shown: tuple[str, ...], ours: float) -> None:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("  (tensorboard is not installed)")
        return
    from training_gym.records.sinks import Feeder, SinkRun, open_sink

    sink = open_sink("tensorboard", SinkRun.of(run), "p", home / "tb")
    Feeder(run, sink, home / "tb.json", everything=True).feed()
    sink.close()
    folder = str(home / "tb" / "p" / run.run_id)

    def open_and_read() -> None:
        found = EventAccumulator(folder, size_guidance={"tensors": 10_000, "scalars": 10_000})
        found.Reload()
        for name in shown:
            found.Tensors(name) if name in found.Tags()["tensors"] else found.Scalars(name)

    wall = tell("TensorBoard's reader: open the run, read the same", open_and_read)
    print(f"  {'ratio to TensorBoard':<52}{wall / ours:9.1f} x")


def _rows(run: RunDirectory) -> Iterator[dict]:
    """The run's metric records."""
    for path in sorted((run.streams / "metrics").glob("*.jsonl")):
        with path.open() as lines:
            yield from map(json.loads, lines)


def _aim(run: RunDirectory, home: Path, shown: tuple[str, ...], ours: float) -> None:
    try:
        from aim import Repo, Run
    except ImportError:
        print("  (aim is not installed)")
        return
    folder = str(home / "aim")
    Repo.from_path(folder, init=True)
    written = Run(repo=folder, system_tracking_interval=None, capture_terminal_logs=False)
    for row in _rows(run):
        written.track(row["values"], step=row["batch"])

    def read() -> int:  # another handle sees the run only once Aim's own service has indexed it
        found = [m.values.sparse_numpy()[1] for m in written.metrics() if m.name in shown]
        return sum(map(len, found))

    if not read():
        raise SystemExit("Aim reads no points")
    wall = tell("Aim's handle of the run, already open: read the same", read)
    written.close()
    print(f"  {'ratio to Aim':<52}{wall / ours:9.1f} x")


def _trackio(run: RunDirectory, home: Path, shown: tuple[str, ...], ours: float) -> None:
    import os

    os.environ["TRACKIO_DIR"] = str(home / "trackio")
    try:
        from trackio.sqlite_storage import SQLiteStorage
    except ImportError:
        print("  (trackio is not installed)")
        return
    rows = list(_rows(run))
    SQLiteStorage.bulk_log(
        project="p",
        run=run.run_id,
        metrics_list=[row["values"] for row in rows],
        steps=[row["batch"] for row in rows],
    )
    wall = tell("trackio's storage: read the run", lambda: SQLiteStorage.get_logs("p", run.run_id))
    print(f"  {'ratio to trackio':<52}{wall / ours:9.1f} x")


def episodes(home: Path, scale: float) -> None:
    """100,000 episodes of about 8 kB: opening the page, filters, one of them."""
    count = max(1000, int(100_000 * scale))
    run = many_episodes(home / "runs", count)
    index = Index(home / "runs", home / "cache")
    size = _size(run.streams / "episodes")
    started, cpu = time.perf_counter(), time.process_time()
    index.refresh("episodes")
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(
        f"  {f'index {count:,} episodes, {size:.0f} MB':<52}{wall:9.1f} s"
        f"  {size / wall:.0f} MB/s, {size / cpu:.0f} MB/s cpu  >= 100"
    )
    tell("open the page", lambda: index.episodes("episodes"), "<= 100")
    tell(
        "a filtered page: reward, status, step",
        lambda: index.episodes(
            "episodes",
            EpisodeQuery(
                reward=Range(low=0.9), status=("finished",), step=Range(low=count // 128, high=None)
            ),
        ),
        "<= 50",
    )
    tell(
        "a filter that nothing matches",
        lambda: index.episodes("episodes", EpisodeQuery(reward=Range(low=5.0))),
        "<= 50",
    )
    tell("sorted by reward", lambda: index.episodes("episodes", EpisodeQuery(order="reward")))
    tell("discarded", lambda: index.discarded("episodes"), "<= 50")
    last = index.episodes("episodes").episodes[0].id
    tell("one episode with tokens", lambda: index.episode("episodes", last))
    tell("search for text", lambda: index.episodes("episodes", EpisodeQuery(text="no such text")))
    index.close()


def many_episodes(runs: Path, count: int) -> RunDirectory:
    """Lines as a recorder writes them, made from a few by changing what lists show."""
    shape = DemoShape(steps=2, groups=4, group_size=8, answer_words=900, evaluate_every=0)
    template = write_demo_run(runs, shape, run_id="template")
    source = next((template.streams / "episodes").glob("*.jsonl"))
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    run = new_run(runs, "episodes")
    folder = run.streams / "episodes"
    folder.mkdir(parents=True)
    per_file = 2000
    for start in range(0, count, per_file):
        name = f"engine-1-{start // per_file}"
        (folder / f"{name}.tok").write_bytes(source.with_suffix(".tok").read_bytes())
        with (folder / f"{name}.jsonl").open("w") as file:
            for number in range(start, min(count, start + per_file)):
                file.write(json.dumps(_varied(lines[number % len(lines)], number)) + "\n")
    return run


def _varied(line: dict, number: int) -> dict:
    batch = number // 64
    episode = dict(line["episode"])
    episode["group"] = f"{batch}-{number // 8}"
    episode["id"] = f"{episode['group']}.{number % 8}"
    episode["member"] = number % 8
    if episode["score"] is not None:
        episode["score"] = {**episode["score"], "value": (number * 7919 % 1000) / 1000}
    return {**line, "seq": number, "batch": batch, "time": 1.7e9 + number, "episode": episode}


def rebuild(home: Path, scale: float) -> None:
    """Delete the index, build it anew, by stream."""
    steps = max(200, int(10_000 * scale))
    shapes = {
        "metrics": DemoShape(steps=steps, groups=0, metrics=100, evaluate_every=0),
        "mixed": DemoShape(steps=max(20, int(300 * scale)), groups=4, answer_words=300),
    }
    for name, shape in shapes.items():
        run = write_demo_run(home / "runs", shape, run_id=f"rebuild-{name}")
        size = (
            _size(run.streams)
            - sum(path.stat().st_size for path in run.streams.rglob("*.tok")) / 1e6
        )
        wall, cpu = timed(lambda name=name: _build_anew(home, f"rebuild-{name}"))
        print(
            f"  {f'{name}: {size:.0f} MB of lines':<52}{wall:9.1f} ms"
            f"  {1000 * size / wall:.0f} MB/s, {1000 * size / cpu:.0f} MB/s cpu  >= 100"
        )


def _build_anew(home: Path, run_id: str) -> None:
    with tempfile.TemporaryDirectory(dir=home) as cache:
        index = Index(home / "runs", Path(cache))
        index.refresh(run_id)
        index.close()


def lag(home: Path, scale: float) -> None:
    """From a metric's recording to an answer that holds it, asked every half second."""
    run = new_run(home / "runs", "lag")
    index = Index(home / "runs", home / "cache")
    lags: list[float] = []
    stop = threading.Event()

    def write() -> Iterator[None]:
        with Recorder(run, writer="engine", attempt=1) as recorder:
            for step in range(max(10, int(40 * scale))):
                recorder.metrics({"sent": time.time()}, Counters(batch=step))
                time.sleep(0.2)
        stop.set()
        yield

    thread = threading.Thread(target=lambda: list(write()))
    thread.start()
    cursor = index.changes("lag").cursor
    while not stop.is_set():
        time.sleep(0.5)
        found = index.changes("lag", cursor)
        cursor = found.cursor
        lags += [time.time() - metric.values["sent"] for metric in found.metrics]
    thread.join()
    ordered = sorted(lags)
    print(f"  {'live lag, asked every 0.5 s: median':<52}{statistics.median(lags):9.2f} s")
    print(f"  {'the longest':<52}{ordered[-1]:9.2f} s  <= 3")
    index.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    parts: dict[str, Callable[[Path], None]] = {
        "recording": lambda home: recording(home, asked.scale),
        "runs": lambda home: runs(home, asked.runs),
        "points": lambda home: points(home, asked.scale),
        "episodes": lambda home: episodes(home, asked.scale),
        "rebuild": lambda home: rebuild(home, asked.scale),
        "lag": lambda home: lag(home, asked.scale),
    }
    for name in asked.names or parts:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as home:
            parts[name](Path(home))
    return 0


if __name__ == "__main__":
    sys.exit(main())
