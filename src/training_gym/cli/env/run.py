"""`training-gym env run FILE`: episodes of an environment, and what was said in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson, Sets

if TYPE_CHECKING:
    from training_gym.spec.episodes import Episode
    from training_gym.spec.messages import Message


def run(
    definition: Annotated[
        str,
        typer.Argument(metavar="FILE[:NAME]", help="File (or package.module) that defines a run."),
    ],
    episodes: Annotated[
        int, typer.Option("--episodes", "-n", min=1, help="How many, each of another task.")
    ] = 4,
    model: Annotated[
        str,
        typer.Option(
            "--model", help="Who plays; the definition's model, or a server's if --endpoint."
        ),
    ] = "",
    endpoint: Annotated[
        str,
        typer.Option("--endpoint", metavar="URL", help="An OpenAI-compatible server, with /v1."),
    ] = "",
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="Variable with the server's key.")
    ] = "",
    side: Annotated[str, typer.Option("--side", help="Tasks to take: train, eval or all.")] = "all",
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Episodes in flight.")] = 8,
    score: Annotated[
        bool, typer.Option("--score/--no-score", help="Judge them as the run would.")
    ] = True,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Play episodes without training and print their transcripts.

    Fails if every episode failed for reasons of infrastructure.
    """
    from training_gym.cli import output
    from training_gym.cli.env.playing import Asked, play
    from training_gym.launch import apply_sets, load_definition
    from training_gym.spec.bridge import run_sync
    from training_gym.spec.errors import EnvironmentFailure, SpecError

    if endpoint and not model:
        raise SpecError("--endpoint names a server, but no model", fix="add --model NAME")
    if key_env and not endpoint:
        raise SpecError(
            f"--key-env {key_env!r} names a server's key, but no --endpoint is given",
            fix="add --endpoint URL, or leave --key-env out",
        )
    if side not in ("train", "eval", "all"):
        raise SpecError(f"--side {side!r} is no side of the tasks", fix="one of train, eval, all")
    config = apply_sets(load_definition(definition), sets or ())
    asked = Asked(
        episodes=episodes,
        model=model or config.model,
        endpoint=endpoint,
        key_env=key_env or None,
        side=side,
        at_once=at_once,
        score=score,
    )
    show = _emit if as_json else _print
    played = run_sync(play(config, asked, show, output.say))
    failed = [e for e in played if e.outcome.status == "infrastructure_failed"]
    if not as_json:
        _summarise(played)
    if len(failed) == len(played):
        raise EnvironmentFailure(
            f"{_all_of(len(played))} failed: {failed[-1].outcome.reason}",
            fix=failed[-1].outcome.fix or "mend the environment, or what it depends on",
        )


def _all_of(count: int) -> str:
    return "the episode" if count == 1 else f"all {count} episodes"


def _emit(episode: Episode) -> None:
    from training_gym.cli import output

    output.emit(
        "env.run/1",
        id=episode.id,
        task=episode.task.id,
        answer=episode.task.answer,
        status=episode.outcome.status,
        reason=episode.outcome.reason,
        score=None if episode.score is None else episode.score.value,
        components={} if episode.score is None else episode.score.components,
        messages=[_message(message) for message in episode.messages],
        conversations={
            agent: [_message(message) for message in messages]
            for agent, messages in episode.conversations.items()
        },
        artifacts=episode.outcome.artifacts,
        tokens=episode.num_tokens,
        forks=episode.forks,
        duration_s=episode.duration_s,
    )


def _message(message: Message) -> dict[str, object]:
    return message.model_dump(mode="json", exclude_defaults=True) | {"role": message.role}


def _print(episode: Episode) -> None:
    """One transcript for people."""
    from training_gym.cli import output

    score = "not judged" if episode.score is None else f"score {episode.score.value:.3g}"
    status = episode.outcome.status.replace("_", " ")
    reason = f" ({episode.outcome.reason})" if episode.outcome.reason else ""
    tokens = f", {episode.num_tokens} tokens" if episode.num_tokens else ""
    output.data(f"── task {episode.task.id}: {status}{reason}, {score}{tokens}")
    several = bool(episode.conversations)
    if several:
        output.data("── what policy saw and said")
    _print_conversation(episode.messages, "policy" if several else "assistant")
    for agent, messages in episode.conversations.items():
        output.data(f"── what {agent} saw and said")
        _print_conversation(messages, agent)
    output.data("")


def _print_conversation(messages: tuple[Message, ...], speaker: str) -> None:
    """One agent's view: its own turns bear its name, all others the role they came in."""
    from training_gym.cli import output

    width = max(9, len(speaker))
    for message in messages:
        who = speaker if message.role == "assistant" else message.role
        body = message.text
        if message.reasoning:
            body = f"(thinks) {message.reasoning}\n{body}"
        for call in message.tool_calls:
            body += f"\n→ {call.name}({call.arguments})"
        first, *rest = body.strip().split("\n") or [""]
        output.data(f"{who:>{width}}  {first}")
        for line in rest:
            output.data(f"{'':>{width}}  {line}")


def _summarise(played: list[Episode]) -> None:
    from training_gym.cli import output

    scores = [episode.score.value for episode in played if episode.score is not None]
    mean = f"mean score {sum(scores) / len(scores):.3g}" if scores else "none was judged"
    output.say(f"{len(played)} episodes, {len(scores)} judged, {mean}")
