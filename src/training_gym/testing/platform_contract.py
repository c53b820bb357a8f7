"""The contract every platform keeps, ours or yours, as a list of clauses to run.

```python
from training_gym.testing.platform_contract import CLAUSES, Subject, try_clause

@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_my_platform(clause, tmp_path):
    try_clause(clause, Subject(make=MyPlatform, kill=..., is_alive=...), tmp_path)
```

The clauses run real jobs of the tiny engine, so `training_gym` must be importable where they run.
Ask for assertion rewriting before the import if you want pytest to explain failures:
`pytest.register_assert_rewrite("training_gym.testing.platform_contract")`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from training_gym.jobs.control import acknowledged, request
from training_gym.records.readers import read_stream
from training_gym.records.status import reconcile
from training_gym.spec.errors import PlatformError
from training_gym.spec.job import JobRef
from training_gym.testing.platform_subject import Subject, Trial, eventually

__all__ = ["CLAUSES", "Clause", "Subject", "try_clause"]

Clause = Callable[[Trial], Awaitable[None]]
ENDLESS = ("--steps", "1000000", "--step-s", "0.05")


def try_clause(clause: Clause, subject: Subject, folder: Path) -> None:
    """Run one clause over an empty folder; raises `AssertionError` where it is broken."""

    async def run() -> None:
        await clause(Trial(subject, folder / "runs"))

    asyncio.run(run())


async def describes_itself(trial: Trial) -> None:
    """Capabilities, facts of the machine, and every file of a submission before it is made."""
    assert trial.platform.capabilities().records
    machine = await trial.platform.probe()
    assert machine.cpu_cores >= 1
    assert machine.memory_gib > 0
    job = trial.job()
    rendered = trial.platform.render(job)
    assert any(job.run_id in text for text in rendered.values())
    assert await trial.platform.find(trial.key) is None, "rendering must submit nothing"


async def submits_once_for_each_key(trial: Trial) -> None:
    """Many launchers at once, and one that comes after the end, get the one job."""
    job = trial.job()
    refs = await asyncio.gather(*(trial.platform.submit(job, trial.key) for _ in range(3)))
    assert await trial.platform.find(trial.key) == refs[0]
    assert await trial.platform.find("another key") is None
    await trial.end(refs[0])
    refs.append(await trial.platform.submit(job, trial.key))
    assert refs == [refs[0]] * 4
    assert (await trial.log(refs[0])).count("attempt 1 begins") == 1


async def runs_to_the_end(trial: Trial) -> None:
    """The source is unpacked, the engine runs, exit file and result are there at the end."""
    ref = await trial.start("--import-module", "user_module")
    state = await trial.end(ref)
    assert (state.status, state.exit_code) == ("succeeded", 0)
    ending = await trial.document(ref, "attempts/1/exit.json")
    assert (ending["exit_code"], ending["stopped_by"]) == (0, None)
    result = await trial.document(ref, "result.json")
    assert (result["status"], result["steps"], result["attempts"]) == ("completed", 2, 1)
    assert "source/user_module.py" in await trial.log(ref)


async def reports_exit_codes(trial: Trial) -> None:
    """A user's error is told in its two lines and never tried again."""
    ref = await trial.start("--user-error", max_restarts=3)
    state = await trial.end(ref)
    assert (state.status, state.exit_code) == ("failed", 3)
    result = await trial.document(ref, "result.json")
    assert result["error"] == {"message": "no rows", "fix": "add some"}
    assert result["attempts"] == 1


async def restarts_after_a_crash(trial: Trial) -> None:
    """As often as the job allows, each attempt with an exit file; logs go on through all."""
    ref = await trial.start("--crash-attempts", "1", "--steps", "4", max_restarts=1)
    assert (await trial.end(ref)).status == "succeeded"
    first = await trial.document(ref, "attempts/1/exit.json")
    assert (first["exit_code"], first["next_attempt"]) == (1, 2)
    assert (await trial.document(ref, "attempts/2/exit.json"))["exit_code"] == 0
    result = await trial.document(ref, "result.json")
    assert (result["status"], result["steps"], result["attempts"]) == ("completed", 4, 2)
    log = await trial.log(ref)
    assert "RuntimeError: told to crash" in log
    assert "step 4 of attempt 2" in log


async def gives_up_after_the_last_restart(trial: Trial) -> None:
    """The last crash is the result."""
    ref = await trial.start("--crash-attempts", "9", max_restarts=1)
    state = await trial.end(ref)
    assert (state.status, state.exit_code) == ("failed", 1)
    result = await trial.document(ref, "result.json")
    assert (result["status"], result["attempts"]) == ("failed", 2)
    assert "told to crash" in result["error"]["message"]


async def logs_go_on_where_they_ended(trial: Trial) -> None:
    """A cursor read at any time, also by another launcher, loses and repeats nothing."""
    ref = await trial.start("--steps", "20", "--step-s", "0.02")
    text, cursor, ended = "", "", False
    while not ended:
        ended = (await trial.platform.state(ref)).ended
        chunk = await trial.platform.logs(ref, cursor)
        text, cursor = text + chunk.text, chunk.cursor
    text += (await trial.platform.logs(ref, cursor)).text
    assert text == await trial.log(ref)
    steps = [line for line in text.splitlines() if line.startswith("step ")]
    assert steps == [f"step {number} of attempt 1" for number in range(1, 21)]


async def stops_gently(trial: Trial) -> None:
    """A stop lets the engine finish what it is at; it is acknowledged by its id."""
    ref = await trial.start(*ENDLESS)
    await trial.begun(ref)
    asked = request(trial.run, "stop")
    assert (await trial.end(ref)).exit_code == 0
    assert (await trial.document(ref, "result.json"))["status"] == "stopped"
    assert acknowledged(trial.run) == {asked: "delivered"}


async def stops_before_training_begins(trial: Trial) -> None:
    """Asked at once after the submission, it does not wait for the model to load."""
    ref = await trial.start(*ENDLESS)
    asked = request(trial.run, "stop")
    await trial.end(ref)
    assert (await trial.document(ref, "result.json"))["status"] == "stopped"
    assert acknowledged(trial.run) == {asked: "delivered"}


async def stops_now_whatever_the_engine_does(trial: Trial) -> None:
    """An engine deaf to signals is killed, and the run counts as stopped."""
    ref = await trial.start(*ENDLESS, "--ignore-signals", stop_grace_s=0.3)
    pids = await trial.begun(ref)
    request(trial.run, "stop_now")
    await trial.end(ref)
    await trial.all_gone(pids)
    ending = await trial.document(ref, "attempts/1/exit.json")
    assert (ending["signal"], ending["stopped_by"]) == ("SIGKILL", "stop_now")
    assert (await trial.document(ref, "result.json"))["status"] == "stopped"


async def asks_for_a_checkpoint(trial: Trial) -> None:
    """A checkpoint request reaches the engine and does not end it."""
    ref = await trial.start(*ENDLESS)
    await trial.begun(ref)
    asked = request(trial.run, "checkpoint")

    async def told() -> bool:
        return "checkpoint at step" in await trial.log(ref)

    await eventually(told, "the engine to say that it wrote a checkpoint")
    request(trial.run, "stop")
    assert (await trial.end(ref)).exit_code == 0
    assert acknowledged(trial.run)[asked] == "delivered"


async def cancels_everything(trial: Trial) -> None:
    """Cancel ends the engine and all it started; doing so twice changes nothing."""
    ref = await trial.start(*ENDLESS, "--spawn")
    pids = await trial.begun(ref)
    assert len(pids) == 3
    await trial.platform.cancel(ref)
    assert (await trial.platform.state(ref)).status == "cancelled"
    await trial.all_gone(pids)
    ending = await trial.document(ref, "attempts/1/exit.json")
    assert ending["stopped_by"] == "cancel"
    await trial.platform.cancel(ref)
    assert await trial.document(ref, "attempts/1/exit.json") == ending
    assert (await trial.document(ref, "result.json"))["status"] == "stopped"


async def leaves_no_process_behind(trial: Trial) -> None:
    """What the engine started and forgot ends with the job, in whatever session it is."""
    ref = await trial.start("--spawn")
    await trial.end(ref)
    await trial.all_gone((await trial.document(ref, "attempts/1/pids.json"))["pids"])


async def notices_a_lost_job(trial: Trial) -> None:
    """A job whose runner was killed is lost, its engine ends too, and the run gets a result."""
    ref = await trial.start(*ENDLESS, "--spawn")
    pids = await trial.begun(ref)
    trial.subject.kill(ref)
    assert (await trial.end(ref)).status == "lost"
    await trial.all_gone(pids)
    result = reconcile(trial.run)
    assert result is not None
    assert result.status == "lost"


async def keeps_secrets(trial: Trial) -> None:
    """A secret reaches the engine only if the job names it, and never any file."""
    named, unnamed = "CONTRACT_NAMED_TOKEN", "CONTRACT_OTHER_TOKEN"
    values = {named: "hush-named-9f2c", unnamed: "hush-other-71ab"}
    os.environ.update(values)
    try:
        job = trial.job("--look-for", named, unnamed, secrets=(named,))
        ref = await trial.platform.submit(job, trial.key)
        await trial.end(ref)
    finally:
        for name in values:
            del os.environ[name]
    log = await trial.log(ref)
    assert f"{named} is {hashlib.sha256(values[named].encode()).hexdigest()}" in log
    assert f"{unnamed} is unset" in log
    started = [e for e in read_stream(trial.run, "events") if e["kind"] == "engine_started"]
    assert unnamed in started[0]["withheld"], "what is held back is told"
    rendered = "".join(trial.platform.render(job).values()).encode()
    files = [path.read_bytes() for path in trial.runs.rglob("*") if path.is_file()]
    assert not any(
        value.encode() in text for value in values.values() for text in [rendered, *files]
    )


async def refuses_a_job_without_its_secret(trial: Trial) -> None:
    """Before anything starts, by name."""
    job = trial.job(secrets=("CONTRACT_ABSENT_TOKEN",))
    await _refused(trial.platform.submit(job, trial.key), "CONTRACT_ABSENT_TOKEN")
    assert await trial.platform.find(trial.key) is None


async def fetches_only_below_the_run(trial: Trial) -> None:
    """No path leads out of the run directory."""
    (trial.runs / "outside").write_text("x")
    ref = await trial.start()
    await trial.end(ref)
    assert await trial.platform.fetch(ref, "source/user_module.py") == b"ANSWER = 42\n"
    (trial.run.path / "link").symlink_to(trial.runs / "outside")
    for path in ("../outside", str(trial.runs / "outside"), "source/../../outside", "link", ""):
        await _refused(trial.platform.fetch(ref, path), "")
    await _refused(trial.platform.fetch(ref, "absent"), "absent")


async def _refused(call: Awaitable[bytes | JobRef], word: str) -> None:
    refusal: PlatformError | None = None
    try:
        await call
    except PlatformError as error:
        refusal = error
    assert refusal is not None, "a PlatformError was expected"
    assert word in refusal.message
    assert refusal.fix


CLAUSES: tuple[Clause, ...] = (
    describes_itself,
    submits_once_for_each_key,
    runs_to_the_end,
    reports_exit_codes,
    restarts_after_a_crash,
    gives_up_after_the_last_restart,
    logs_go_on_where_they_ended,
    stops_gently,
    stops_before_training_begins,
    stops_now_whatever_the_engine_does,
    asks_for_a_checkpoint,
    cancels_everything,
    leaves_no_process_behind,
    notices_a_lost_job,
    keeps_secrets,
    refuses_a_job_without_its_secret,
    fetches_only_below_the_run,
)
