"""A model's chat template as its files have it, read without transformers."""

from __future__ import annotations

import json
from pathlib import Path


def read_template(folder: Path) -> str | None:
    """The template's text, several as JSON; None: the model is a base model."""
    for name in ("chat_template.jinja", "chat_template.json"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    template = config.get("chat_template") if isinstance(config, dict) else None
    return template if isinstance(template, str) else json.dumps(template) if template else None
