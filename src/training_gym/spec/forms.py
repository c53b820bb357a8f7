"""What an answer has to be: wishes that a sampler holds token by token.

Whoever asks names an `AnswerForm`. The policy, which knows the model's template and the tools
offered, makes a `Grammar` of it, and that is what samplers take.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training_gym.spec.settings import Settings


class AnswerForm(Settings):
    """How an answer has to be built. Reasoning in front of it stays free."""

    kind: Literal["answer"] = "answer"
    content_schema: str | None = None
    """JSON schema, written as JSON, that the content follows; None: any text."""
    least_calls: Literal[0, 1] = 0
    """1: the answer is a tool call, without content."""
    most_calls: Literal[0, 1] | None = None
    """0: no call, 1: one at most; None: as many as the model likes."""
    callable_tools: tuple[str, ...] | None = None
    """The tools, of those offered, that may be called; None: all."""
    loose_tools: tuple[str, ...] = ()
    """Tools whose arguments are any JSON object, not one that follows their schema."""


class Grammar(Settings):
    """A context-free grammar of whole answers."""

    kind: Literal["grammar"] = "grammar"
    lark: str = Field(min_length=1)
    """In llguidance's dialect of Lark. An answer may end where `start` is complete."""
