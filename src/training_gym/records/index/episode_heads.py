"""What lists and filters need of an episode, without its text.

With msgspec installed, only that much of a line is decoded: the messages, which are most of it, are
passed over. Whatever a line does not say in the way our recorder says it is left to the standard
reader, so both give the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from training_gym.records.index.decode import number_or_none
from training_gym.spec.episodes import OutcomeStatus

if TYPE_CHECKING:
    from training_gym.records.index.sampled import Sampled

STATUSES: tuple[str, ...] = get_args(OutcomeStatus)
TRAIN = "train"
PREVIEW = 160


class EpisodeHead(NamedTuple):
    """One episode's line in short."""

    writer: str
    attempt: int
    seq: int
    time: float
    batch: int | None
    optimizer_step: int | None
    policy_version: int | None
    id: str
    group: str
    member: int
    stream: str
    task: str
    environment: str
    status: int
    """Place in `STATUSES`."""
    reason: str
    discarded: bool
    reward: float | None
    components: dict[str, Any]
    turns: int
    preview: str
    duration_s: float
    retries: int
    tokens: int
    prompt_tokens: int
    mean_logprob: float | None
    staleness: Any


def head_of(record: dict[str, Any], sampled: Sampled) -> EpisodeHead:
    """The head of a whole record; raises what Python does where it is no episode of ours."""
    episode = record["episode"]
    task, outcome, score = episode["task"], episode["outcome"], episode.get("score")
    metadata = task.get("metadata") or {}
    messages = episode.get("messages") or ()
    reward = None if score is None else number_or_none(score["value"])
    prompt = task.get("prompt")
    discarded = record.get("discarded")
    return EpisodeHead(
        writer=str(record["writer"]),
        attempt=record["attempt"],
        seq=record["seq"],
        time=record["time"],
        batch=record["batch"],
        optimizer_step=record["optimizer_step"],
        policy_version=record["policy_version"],
        id=str(episode["id"]),
        group=str(episode["group"]),
        member=int(episode.get("member", 0)),
        stream=str(episode.get("stream", TRAIN)),
        task=str(task["id"]),
        environment=str(metadata.get("environment") or metadata.get("env") or ""),
        status=STATUSES.index(str(outcome.get("status", "finished"))),
        reason=str(discarded or outcome.get("reason", "")),
        discarded=bool(discarded),
        reward=reward if reward is None or reward == reward else None,
        components=(score or {}).get("components") or {},
        turns=_answers(messages) - (_answers(prompt) if isinstance(prompt, list) else 0),
        preview=_preview(messages),
        duration_s=float(episode.get("duration_s", 0.0)),
        retries=int(episode.get("retries", 0)),
        tokens=sampled.tokens,
        prompt_tokens=sampled.prompt_tokens,
        mean_logprob=sampled.mean_logprob,
        staleness=record.get("staleness", sampled.staleness),
    )


def text_of(message: dict[str, Any]) -> str:
    """The text of a recorded message, its parts joined."""
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", f"[{part.get('type')}]")) for part in content or ())


def _answers(messages: Iterable[dict[str, Any]]) -> int:
    """How many are the policy's; those shown in the prompt are not its own."""
    return sum(message.get("role") == "assistant" for message in messages)


def _preview(messages: Sequence[dict[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return preview_of(text_of(message))
    return ""


def preview_of(text: str) -> str:
    """The beginning of an answer, as lists show it."""
    return text[:PREVIEW].encode(errors="replace").decode()
