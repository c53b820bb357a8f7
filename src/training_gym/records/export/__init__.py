"""A run in the formats of other tools, and as one page to send to a colleague."""

from training_gym.records.export.formats import FORMATS, Format, export_run

__all__ = ["FORMATS", "Format", "export_run"]
