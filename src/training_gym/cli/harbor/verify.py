"""`training-gym harbor verify`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from training_gym.data.harbor import HarborTask
    from training_gym.environments.harbor import TaskReport, Terms


_OPTIONS = {
    "HarborDataset.path": "PATH",
    "HarborDataset.dataset": "--dataset",
    "HarborDataset.git": "--git",
    "HarborDataset.commit": "--commit",
    "HarborDataset.tasks": "--task",
}


class Base(StrEnum):
    """What tasks start from."""

    image = "image"
    host = "host"


class Reach(StrEnum):
    """Which network tasks get."""

    task = "task"
    none = "none"


def verify(
    path: Annotated[str, typer.Argument(help="Task folder, folder of tasks, or registry (.json).")],
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME[@VERSION]", help="Which data set of a registry.")
    ] = None,
    git: Annotated[str | None, typer.Option(help="Repository in which PATH lies.")] = None,
    commit: Annotated[str | None, typer.Option(help="Its commit, 40 digits.")] = None,
    tasks: Annotated[
        list[str] | None, typer.Option("--task", help="Pattern of folder names; may be repeated.")
    ] = None,
    provider: Annotated[str, typer.Option(help="Sandbox provider.")] = "local",
    base: Annotated[
        Base, typer.Option(help="Start from the task's image, or from this machine's programs.")
    ] = Base.image,
    network: Annotated[
        Reach, typer.Option(help="The network a task asks for, or none.")
    ] = Reach.task,
    at_once: Annotated[int, typer.Option(min=1, help="Tasks to run side by side.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Run each task's reference solution, and no solution, and say whether the task is sound.

    A sound task gives the full reward to its solution and less to doing nothing.
    """
    from pathlib import Path

    from training_gym.cli.failures import UNSOUND
    from training_gym.cli.wording import options_named
    from training_gym.data.harbor import read_tasks
    from training_gym.environments.harbor import Terms
    from training_gym.spec.bridge import run_sync
    from training_gym.spec.datasets import HarborDataset

    with options_named(_OPTIONS):
        wanted = HarborDataset(
            path=path, dataset=dataset, git=git, commit=commit, tasks=tuple(tasks or ("*",))
        )
    found = [task for task, _ in read_tasks(wanted, Path.cwd())]
    terms = Terms(base=base.value, network=network.value)
    reports = run_sync(_verify_all(found, provider, terms, at_once, as_json))
    sound = sum(report.finding == "sound" for report in reports)
    _tell_end(reports, sound, as_json)
    if sound < len(reports):
        raise typer.Exit(UNSOUND)


async def _verify_all(
    tasks: list[HarborTask], provider_name: str, terms: Terms, at_once: int, as_json: bool
) -> list[TaskReport]:
    import asyncio

    from training_gym.environments.harbor import verify_task
    from training_gym.sandboxes import registry

    provider = registry.find(provider_name)
    room = asyncio.Semaphore(at_once)

    async def verified(task: HarborTask) -> TaskReport:
        async with room:
            report = await verify_task(provider, task, terms)
        _tell(report, as_json)
        return report

    try:
        return list(await asyncio.gather(*map(verified, tasks)))
    finally:
        await provider.close()


def _tell(report: TaskReport, as_json: bool) -> None:
    from training_gym.cli import output

    if as_json:
        output.emit("harbor.task/1", **report.model_dump(mode="json"))
        return
    output.data(f"{report.finding}\t{report.name}\t{report.reason}")
    for note in report.notes:
        output.say(f"{report.name}: {note}")
    if report.fix:
        output.say(f"{report.name}: fix: {report.fix}")


def _tell_end(reports: list[TaskReport], sound: int, as_json: bool) -> None:
    from training_gym.cli import output

    if as_json:
        findings = sorted({report.finding for report in reports})
        counts = {
            finding: sum(report.finding == finding for report in reports) for finding in findings
        }
        output.emit("harbor.verify/1", tasks=len(reports), sound=sound, findings=counts)
    else:
        output.say(f"{sound} of {len(reports)} tasks are sound")
