"""`training-gym sandbox size`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from training_gym.sandboxes.demand import Demand
    from training_gym.sandboxes.step import Step, StepRow


_OPTIONS = {
    "Demand.episodes": "--episodes",
    "Demand.hold_s": "--hold-time",
    "Demand.start_s": "--start-time",
    "Demand.failure_s": "--failure-time",
    "Demand.failure": "--failure",
    "Demand.death": "--death",
    "Demand.refill_s": "--refill-time",
    "Demand.create_limit_per_s": "--create-limit",
    "Demand.blocking": "--blocking",
    "Step.rollouts": "--rollouts",
    "Step.longest_s": "--hold-time",
    "Step.start_s": "--start-time",
    "Step.death": "--death",
    "Step.create_limit_per_s": "--create-limit",
}


def size(
    episodes: Annotated[
        int, typer.Option(min=1, help="Episodes in flight, each holding a sandbox.")
    ],
    start_time: Annotated[float, typer.Option(help="Mean seconds a sandbox takes to start.")] = 0.3,
    hold_time: Annotated[
        float, typer.Option(help="Mean seconds an episode holds its sandbox.")
    ] = 10.0,
    failure: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Share of starts that fail.")
    ] = 0.0,
    failure_time: Annotated[
        float | None,
        typer.Option(help="Mean seconds until a failed start is noticed; default: as a start."),
    ] = None,
    death: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Share of sandboxes that die in use.")
    ] = 0.0,
    refill_time: Annotated[
        float, typer.Option(min=0.0, help="Seconds between refills; 0: at every acquire.")
    ] = 0.0,
    create_limit: Annotated[
        float | None, typer.Option(help="Creations a second that the provider allows.")
    ] = None,
    blocking: Annotated[
        float | None, typer.Option(help="Share of acquires that may wait; default 0.01.")
    ] = None,
    idle_cost: Annotated[
        float | None, typer.Option(help="Price of an idle sandbox-second: with --blocked-cost.")
    ] = None,
    blocked_cost: Annotated[
        float | None, typer.Option(help="Price of a second in which one rollout waits.")
    ] = None,
    first_action: Annotated[
        float | None,
        typer.Option(help="Mean seconds to a rollout's first action: size a burst as well."),
    ] = None,
    grader_rate: Annotated[
        float | None, typer.Option(help="Grading calls a second: size stateless graders as well.")
    ] = None,
    grader_time: Annotated[float, typer.Option(help="Mean seconds of a grading call.")] = 2.0,
    rollouts: Annotated[
        int | None,
        typer.Option(min=1, help="Also the table of one synchronous step of so many rollouts."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how many sandboxes to hold ready, and why.

    The table of --rollouts plays one action a rollout: at most --hold-time seconds, lognormal with
    0.3 of it as median, with 1 % deaths and 40 creations a second unless told otherwise.
    """
    from training_gym.cli import output
    from training_gym.cli.wording import options_named
    from training_gym.sandboxes.demand import Demand, explanation
    from training_gym.sandboxes.demand import size as answer_of

    with options_named(_OPTIONS):
        demand = Demand(
            episodes=episodes,
            hold_s=hold_time,
            start_s=start_time,
            failure=failure,
            failure_s=failure_time,
            death=death,
            refill_s=refill_time,
            create_limit_per_s=create_limit,
            blocking=_blocking(blocking, idle_cost, blocked_cost),
        )
        answer = answer_of(demand)
        burst = None if first_action is None else _burst(demand, first_action)
        graders = (
            None if grader_rate is None else _graders(grader_rate, grader_time, demand.blocking)
        )
        step = None if rollouts is None else _step(demand, rollouts)
    rows = [] if step is None else _table(step)
    if as_json:
        output.emit(
            "sandbox.size/1",
            demand=demand.model_dump(mode="json"),
            size=answer.model_dump(mode="json"),
            burst_spares=burst,
            graders=graders,
            step=[row.model_dump(mode="json") for row in rows],
        )
        return
    for line in explanation(demand, answer):
        output.data(line)
    if burst is not None:
        output.data(_burst_in_words(demand, first_action or 0.0, burst))
    if graders is not None:
        output.data(
            f"graders: {graders} stateless sandboxes for {grader_rate:g} calls a second of "
            f"{grader_time:g} s, of which at most {demand.blocking:g} find none free (Erlang B)"
        )
    if step is not None:
        _show_table(step, rows)


def _blocking(blocking: float | None, idle_cost: float | None, blocked_cost: float | None) -> float:
    from training_gym.cli.failures import UsageError
    from training_gym.sandboxes.sizing import cost_optimal_blocking

    if idle_cost is None and blocked_cost is None:
        return 0.01 if blocking is None else blocking
    if blocking is not None or idle_cost is None or blocked_cost is None:
        raise UsageError(
            "the blocking follows from two prices or is given, not both",
            fix="give --blocking, or --idle-cost and --blocked-cost",
        )
    return cost_optimal_blocking(idle_cost, blocked_cost)


def _burst(demand: Demand, first_action_s: float) -> int:
    from training_gym.sandboxes.sizing import burst_spares, erlang_cdf

    return burst_spares(
        demand.episodes,
        erlang_cdf(4, first_action_s),
        create_per_s=demand.create_limit_per_s or 40.0,
        start_s=demand.start_s,
        horizon_s=6.0 * first_action_s,
        failure=demand.failure,
        death=demand.death,
        blocking=demand.blocking,
    )


def _burst_in_words(demand: Demand, first_action_s: float, spares: int) -> str:
    return (
        f"burst: {spares} spares ready when all {demand.episodes} begin at once and first act "
        f"after {first_action_s:g} s on average, at "
        f"{demand.create_limit_per_s or 40.0:g} creations a second meanwhile"
    )


def _graders(calls_per_s: float, call_s: float, blocking: float) -> int:
    from training_gym.sandboxes.sizing import graders

    return graders(calls_per_s, call_s, blocking)


def _step(demand: Demand, rollouts: int) -> Step:
    from training_gym.sandboxes.step import Step

    return Step(
        rollouts=rollouts,
        longest_s=demand.hold_s,
        median_s=0.3 * demand.hold_s,
        start_s=demand.start_s,
        death=demand.death or 0.01,
        create_limit_per_s=demand.create_limit_per_s or 40.0,
    )


def _table(step: Step) -> list[StepRow]:
    from training_gym.sandboxes.step import CONCURRENT, table

    widths = sorted({min(width, step.rollouts) for width in CONCURRENT})
    return table(step, widths)


def _show_table(step: Step, rows: list[StepRow]) -> None:
    from training_gym.cli import output
    from training_gym.sandboxes.step import floor_s

    output.data(
        f"\none step of {step.rollouts} rollouts, each one action of at most {step.longest_s:g} s "
        f"(median {step.median_s:g} s), in seconds:"
    )
    output.table(
        [
            "concurrent",
            "worst case",
            "typical",
            f"+{step.death:.0%} deaths, retried",
            f"single use, {step.create_limit_per_s:g} creates/s",
        ],
        [
            (
                row.concurrent,
                *(round(s) for s in (row.worst_s, row.typical_s, row.deaths_s, row.single_use_s)),
            )
            for row in rows
        ],
    )
    output.data(
        f"single use cannot beat {floor_s(step):.0f} s: {step.rollouts} creations at "
        f"{step.create_limit_per_s:g} a second, and the last action"
    )
