"""Messages as chat templates know them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from training_gym.spec.settings import Settings

Role = Literal["system", "user", "assistant", "tool"]


class TextPart(Settings):
    """A piece of text."""

    type: Literal["text"] = "text"
    text: str


class MediaPart(Settings):
    """An image, sound or film, content-addressed."""

    type: Literal["image", "audio", "video"]
    sha256: str
    """Hash of the blob under the run's `blobs/` folder."""


ContentPart = Annotated[TextPart | MediaPart, Field(discriminator="type")]


class ToolCall(Settings):
    """A call the model asked for."""

    id: str
    name: str
    arguments: str
    """Exactly what the model wrote, also when it is not valid JSON."""


class Message(Settings):
    """One turn of a conversation."""

    role: Role
    content: str | tuple[ContentPart, ...] = ""
    reasoning: str | None = None
    """What the model thought before it answered, where its family separates that."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """On a tool message: the call it answers."""
    name: str | None = None

    @property
    def text(self) -> str:
        """The text of the content, parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


def system(text: str) -> Message:
    """A system message."""
    return Message(role="system", content=text)


def user(text: str) -> Message:
    """A user message."""
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    """An assistant message."""
    return Message(role="assistant", content=text)


class ToolSpec(Settings):
    """A tool offered to the model."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue] = {}
    """JSON schema of the arguments."""
