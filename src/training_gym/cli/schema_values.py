"""Schemas of `--json` that are values of the index: what they hold is declared, and told, there."""

from __future__ import annotations

from pydantic import BaseModel

from training_gym.records import index

VALUES: dict[str, type[BaseModel]] = {
    "status/1": index.RunRow,
    "metrics/1": index.Series,
    "episodes/1": index.EpisodeRow,
    "episode/1": index.EpisodeDetail,
    "timeline/1": index.Timeline,
    "logs/1": index.LogLine,
    "compare/1": index.Comparison,
    "compare.diff/1": index.ConfigDifference,
    "changes/1": index.Changes,
}
"""Objects that are values of the index, with all their fields."""


def fields_of(value: type[BaseModel]) -> dict[str, str]:
    """A value's fields and what they mean, by its own words."""
    return {
        name: " ".join((field.description or name.replace("_", " ")).split())
        for name, field in value.model_fields.items()
    }
