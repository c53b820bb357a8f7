"""How a conversation begins: the task's prompt, and what the environment says first."""

from __future__ import annotations

from collections.abc import Sequence

from training_gym.spec.messages import Message, system, user
from training_gym.spec.tasks import Task


def opening(task: Task, observation: str = "") -> list[Message]:
    """The task's messages with an observation after them, in one user turn where both are one's."""
    messages = [user(task.prompt)] if isinstance(task.prompt, str) else list(task.prompt)
    messages = [message for message in messages if message.text or message.role != "user"]
    if not observation:
        return messages
    if messages and messages[-1].role == "user":
        joined = f"{messages[-1].text}\n\n{observation}"
        return [*messages[:-1], user(joined)]
    return [*messages, user(observation)]


def with_instructions(messages: Sequence[Message], instructions: str) -> list[Message]:
    """The conversation with instructions after its system message, or in one of their own."""
    if messages and messages[0].role == "system":
        joined = f"{messages[0].text}\n\n{instructions}"
        return [system(joined), *messages[1:]]
    return [system(instructions), *messages]
