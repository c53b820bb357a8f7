"""reasoning-gym's own scorers, for tasks that its generators made."""

from __future__ import annotations

import functools
import json
from typing import Any

from pydantic import JsonValue

from training_gym.data.entries import create_generator, decode_entry
from training_gym.data.generated import ENTRY
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import RewardError
from training_gym.spec.settings import Settings


class ReasoningGymScore(Settings):
    """The generator's own score of the answer, mostly from 0 to 1 (reasoning-gym).

    Some of its scorers evaluate text that the model wrote: use them where that does no harm.
    """

    name: str
    """Name of the generator."""
    arguments: dict[str, JsonValue] = {}
    """The generator's settings, as for the dataset."""
    answer_tag: str | None = "answer"
    """The answer is what the last such tag holds; without the tag, the whole completion."""

    def __call__(self, episode: Episode) -> float:
        """Score the completion against the entry that the task keeps."""
        entry = episode.task.metadata.get(ENTRY)
        if entry is None:
            raise RewardError(
                "the task keeps no reasoning-gym entry",
                fix="use this scorer with GeneratedDataset only",
            )
        generator = _generator(self.name, json.dumps(self.arguments, sort_keys=True))
        answer = _in_tag(episode.completion, self.answer_tag).strip()
        try:
            return float(generator.score_answer(answer, decode_entry(entry)))
        # The boundary to reasoning-gym, whose scorers raise on answers they cannot read.
        except Exception:  # noqa: BLE001
            return 0.0


def _in_tag(text: str, tag: str | None) -> str:
    if tag is None:
        return text
    before, closing, _ = text.rpartition(f"</{tag}>")
    _, opening, content = before.rpartition(f"<{tag}>")
    return content if closing and opening else text


@functools.lru_cache(maxsize=16)
def _generator(name: str, arguments: str) -> Any:
    return create_generator(name, 1, 0, json.loads(arguments))
