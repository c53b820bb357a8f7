"""One thing to solve."""

from __future__ import annotations

import hashlib
import json

from pydantic import JsonValue

from training_gym.spec.messages import Message, assistant
from training_gym.spec.settings import Settings


class Task(Settings):
    """Prompt, expected answer or verifier data, and what keeps related tasks together."""

    id: str
    """Stable: the same content has the same id on every machine."""
    prompt: str | tuple[Message, ...]
    """Messages for the chat template, or a string that is completed as it stands."""
    answer: JsonValue = None
    """Expected answer or whatever the reward needs; the text to imitate in supervised training."""
    rejected: JsonValue = None
    """The answer to avoid, where preferences are learned and `answer` is the one to choose."""
    metadata: dict[str, JsonValue] = {}
    """Every other column of the row."""
    split_key: str
    """Tasks with the same key stay on one side of a split (repository, conversation, time)."""

    @property
    def prompt_text(self) -> str:
        """The prompt as plain text, for people and for logs."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n".join(message.text for message in self.prompt)

    @property
    def target(self) -> Message | None:
        """The assistant message that supervised training imitates, if the task has one."""
        if isinstance(self.answer, str):
            return assistant(self.answer)
        return None

    @property
    def rejected_target(self) -> Message | None:
        """The assistant message that preference training makes less likely."""
        if isinstance(self.rejected, str):
            return assistant(self.rejected)
        return None


def content_id(value: JsonValue) -> str:
    """The first 16 hex digits of the SHA-256 of the value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
