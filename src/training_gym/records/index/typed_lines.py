"""Lines of episodes decoded by their type: what is not named here is not even built.

Imported only where msgspec is installed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from training_gym.records.index.decode import as_number
from training_gym.records.index.episode_heads import (
    STATUSES,
    TRAIN,
    EpisodeHead,
    preview_of,
    text_of,
)

_PLACES = {status: place for place, status in enumerate(STATUSES)}


class _Message(msgspec.Struct):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b'""')


class _Metadata(msgspec.Struct):
    environment: str = ""
    env: str = ""


class _Task(msgspec.Struct):
    id: str
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    prompt: msgspec.Raw = msgspec.Raw(b'""')


class _Outcome(msgspec.Struct):
    status: str = "finished"
    reason: str = ""


class _Score(msgspec.Struct):
    value: float | str | None
    components: dict[str, Any] = msgspec.field(default_factory=dict)


class _Episode(msgspec.Struct):
    id: str
    group: str
    task: _Task
    outcome: _Outcome
    stream: str = TRAIN
    score: _Score | None = None
    member: int = 0
    messages: list[_Message] = msgspec.field(default_factory=list)
    duration_s: float = 0.0
    retries: int = 0


class _Sums(msgspec.Struct):
    tokens: int
    logprobs: float
    first: int | None
    last: int | None


class _Trajectory(msgspec.Struct):
    prompt_length: int
    sampled: _Sums


class _Line(msgspec.Struct):
    schema: Literal[1]
    writer: str
    attempt: int
    seq: int
    time: float
    batch: int | None
    optimizer_step: int | None
    policy_version: int | None
    episode: _Episode
    trajectories: list[_Trajectory] = msgspec.field(default_factory=list)
    discarded: str = ""
    staleness: int | float | msgspec.UnsetType | None = msgspec.UNSET


_LINES = msgspec.json.Decoder(_Line)
_ROLES = msgspec.json.Decoder(list[_Message])
_ANY = msgspec.json.Decoder()


def quick_heads(data: bytes) -> list[EpisodeHead]:
    """Heads of lines that our recorder wrote; raises what Python does where one is not quite so."""
    return [_head(line) for line in _LINES.decode_lines(data)]


def _head(line: _Line) -> EpisodeHead:
    episode = line.episode
    task, score = episode.task, episode.score
    reward = None if score is None or score.value is None else as_number(score.value)
    tokens, prompt_tokens, mean_logprob, staleness = _sums(line.trajectories)
    turns, preview = _answers(episode.messages)
    return EpisodeHead(
        line.writer,
        line.attempt,
        line.seq,
        line.time,
        line.batch,
        line.optimizer_step,
        line.policy_version,
        episode.id,
        episode.group,
        episode.member,
        episode.stream,
        task.id,
        task.metadata.environment or task.metadata.env,
        _PLACES[episode.outcome.status],
        line.discarded or episode.outcome.reason,
        bool(line.discarded),
        reward if reward is None or reward == reward else None,
        {} if score is None else score.components,
        turns - _shown(bytes(task.prompt)),
        preview,
        episode.duration_s,
        episode.retries,
        tokens,
        prompt_tokens,
        mean_logprob,
        staleness if line.staleness is msgspec.UNSET else line.staleness,
    )


def _sums(paths: list[_Trajectory]) -> tuple[int, int, float | None, int | None]:
    """Tokens, prompt's tokens, mean log-probability, versions between oldest and newest."""
    tokens, prompt, total = 0, 0, 0.0
    versions = []
    for path in paths:
        sums = path.sampled
        tokens += sums.tokens
        prompt += path.prompt_length
        total += sums.logprobs
        versions += [version for version in (sums.first, sums.last) if version is not None]
    spread = max(versions) - min(versions) if versions else None
    return tokens, prompt, total / tokens if tokens else None, spread


def _answers(messages: list[_Message]) -> tuple[int, str]:
    """How many are the policy's, and the beginning of its last."""
    count, last = 0, None
    for message in messages:
        if message.role == "assistant":
            count, last = count + 1, message
    if last is None:
        return 0, ""
    return count, preview_of(text_of({"content": _ANY.decode(last.content)}))


def _shown(prompt: bytes) -> int:
    """Answers that a prompt shows; a prompt that is text shows none."""
    if not prompt.startswith(b"[") or b'"assistant"' not in prompt:
        return 0
    return sum(message.role == "assistant" for message in _ROLES.decode(prompt))
