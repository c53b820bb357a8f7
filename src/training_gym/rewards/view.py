"""The episode as a reward sees it: everything but the token columns.

A trajectory still says whose it is and how many tokens were sampled in it, so that
`episode.num_tokens` holds; ids and log-probabilities stay with the trainer.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError

from training_gym.spec.episodes import SAMPLED, Episode, Trajectory


def episode_json(episode: Episode) -> str:
    """The view as JSON, for the way to a worker."""
    view = episode.model_copy(
        update={"trajectories": tuple(map(_without_tokens, episode.trajectories))}
    )
    try:
        return view.model_dump_json()
    except PydanticSerializationError:
        # Text with half of a surrogate pair has no UTF-8, but it has escaped JSON.
        return json.dumps(view.model_dump(mode="json"))


def read_episode(data: Any) -> Episode:
    """The episode from parsed JSON; a copy that a reward may change as it likes."""
    return Episode.read(data)


def _without_tokens(trajectory: Trajectory) -> Trajectory:
    return Trajectory(
        agent=trajectory.agent,
        token_ids=(),
        flags=(SAMPLED,) * trajectory.num_sampled,
        logprobs=(),
        versions=(),
        prompt_length=0,
    )
