"""Conversations with a simulated user: a fixed model, or the policy itself in another role."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from training_gym.environments.opening import opening
from training_gym.spec.endpoints import Endpoint
from training_gym.spec.environment import Context, Policy
from training_gym.spec.episodes import Outcome
from training_gym.spec.messages import Message, assistant, system, user
from training_gym.spec.settings import Settings
from training_gym.spec.tasks import Task


class UserSimulation(Settings):
    """The policy serves a user that another model plays, until that user has what it wants.

    The task's prompt is what the policy knows at the start; what the user wants stands in another
    column, and only the user is told. Judging is a reward's: it sees both conversations, the
    user's own under `episode.conversations["user"]` where the policy under training plays it.
    """

    user: str | Endpoint | None = None
    """Who plays the user: a fixed model by name or address; None: the policy under training, as the
    agent `user`, which may have a reward of its own."""
    wants_key: str = "wants"
    """Column that tells the user who it is and what it wants."""
    done: str = "[done]"
    """What the user says when it needs nothing more."""
    max_turns: int = Field(8, ge=1)
    """Answers of the policy after which the episode is truncated."""

    async def run(self, task: Task, policy: Policy, ctx: Context) -> Outcome:
        """User and policy in turn; the user begins."""
        player = ctx.policy("user") if self.user is None else ctx.fixed(self.user)
        wants = str(task.metadata.get(self.wants_key) or "")
        rules = system(f"{wants}\n\nWhen you need nothing more, say {self.done}.".strip())
        conversation: list[Message] = []
        for _ in range(self.max_turns):
            said = (await player.chat([rules, *_seen_by_user(conversation)])).text
            ctx.keep({"user": [*(m.text for m in conversation if m.role == "user"), said]})
            if self.done in said:
                return Outcome()
            conversation = [*conversation, user(said)]
            conversation.append(await policy.chat([*_prompt(task), *conversation]))
        return Outcome(status="truncated", reason=f"not done after {self.max_turns} turns")


def _prompt(task: Task) -> list[Message]:
    """What the policy is told before the user speaks."""
    given = opening(task)
    return [system(given[0].text)] if isinstance(task.prompt, str) and given else given


def _seen_by_user(conversation: Sequence[Message]) -> list[Message]:
    """The conversation with roles exchanged: to the user, its own words are the answers."""
    if not conversation:
        return [user("Begin.")]
    return [
        user("Begin."),
        *(assistant(m.text) if m.role == "user" else user(m.text) for m in conversation),
    ]
