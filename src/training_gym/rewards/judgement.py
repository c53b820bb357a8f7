"""What became of one episode's reward, and whose fault it was if there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from training_gym.spec.episodes import Episode, Score

Kind = Literal["ok", "none", "raised", "timeout", "invalid", "died"]

LONGEST_REASON = 600


@dataclass(frozen=True, slots=True)
class Judgement:
    """A score, or why there is none."""

    score: Score | None
    failure: str | None
    """One line that names the reward, what it did and the task; None for `ok` and `none`."""
    kind: Kind
    """`ok`: scored; `none`: the reward could not judge; the others: it misbehaved."""

    @property
    def failed(self) -> bool:
        """Whether the reward misbehaved, which is not the same as a low score."""
        return self.kind not in ("ok", "none")


NOT_JUDGED = Judgement(None, None, "none")


def scored(score: Score) -> Judgement:
    """The reward judged."""
    return Judgement(score, None, "ok")


def failed(kind: Kind, reason: str) -> Judgement:
    """The reward misbehaved; `reason` begins with a verb."""
    return Judgement(None, printable(reason)[:LONGEST_REASON], kind)


def attributed(judgement: Judgement, reward: str, episode: Episode) -> Judgement:
    """The failure with the reward's name and the row that caused it."""
    if judgement.failure is None:
        return judgement
    prompt = " ".join(episode.task.prompt_text.split())
    excerpt = prompt if len(prompt) <= 60 else prompt[:59] + "…"
    where = printable(f"on task {episode.task.id} ({excerpt!r})")
    return replace(judgement, failure=f"reward {reward!r} {judgement.failure} {where}")


def to_json(judgements: Sequence[Judgement]) -> list[dict[str, Any]]:
    """For the way from a worker to its caller."""
    return [
        {
            "kind": judgement.kind,
            "failure": judgement.failure,
            "score": judgement.score and judgement.score.model_dump(mode="json"),
        }
        for judgement in judgements
    ]


def from_json(items: Sequence[dict[str, Any]]) -> list[Judgement]:
    """What `to_json` was given."""
    return [
        Judgement(
            score=Score.read(item["score"]) if item["score"] is not None else None,
            failure=item["failure"],
            kind=item["kind"],
        )
        for item in items
    ]


def printable(text: str) -> str:
    """The text without what cannot be written to a file, such as halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
