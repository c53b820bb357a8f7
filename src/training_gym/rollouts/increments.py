"""What the template adds for new messages: the difference of two texts, never a guess.

Let the conversation so far end with a sampled answer. `opened` is the template's text of it with
the new messages and the opening of the next answer. Where it is the text of the answer's prompt,
the answer just as it was sampled, and something more, that is the increment.

Where the template words the answer in another way, `closed`, its text of the conversation without
the new messages, tells where the answer ends. The increment is what `opened` has behind it, if

1. `closed` begins with the text that was the prompt of the answer (no earlier turn is rewritten),
2. the answer in `closed` has the special tokens that were sampled (its structure is the same; its
   wording may differ, as JSON is spaced differently, and the sampled ids stay),
3. `opened` begins with `closed` up to the end of the answer (nothing is rewritten now).

Otherwise there is no increment, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training_gym.rollouts.graph import Node, Rendering
from training_gym.spec.episodes import PROMPT, TOOL
from training_gym.spec.errors import ModelError
from training_gym.spec.messages import Message, ToolSpec
from training_gym.spec.text import TextCodec


@dataclass(frozen=True)
class Increment:
    """Tokens that follow a sampled answer."""

    ids: tuple[int, ...]
    flags: tuple[int, ...]
    rendering: Rendering
    exact: bool
    """The template writes the answer as it was sampled."""


@dataclass(frozen=True)
class Broken:
    """The template does not continue what was sampled."""

    reason: str


class Template:
    """A codec's template, with the tools of one conversation."""

    def __init__(self, codec: TextCodec, tools: Sequence[ToolSpec]) -> None:
        """Offer the same tools in every rendering."""
        self._codec = codec
        self._tools = tools

    def open(self, messages: Sequence[Message]) -> str:
        """The prompt of a conversation's next answer."""
        return self._codec.render(messages, tools=self._tools, add_generation_prompt=True)

    def close(self, messages: Sequence[Message]) -> str:
        """A conversation without the opening of an answer."""
        return self._codec.render(messages, tools=self._tools, add_generation_prompt=False)

    def increment(self, answer: Node, new: Sequence[Message]) -> Increment | Broken:
        """What follows the sampled node `answer` when `new` is said; raises `ModelError`.

        An error is the template's refusal of the whole conversation, new messages included.
        """
        prompt = answer.parent
        assert prompt is not None
        assert prompt.rendering is not None
        history = answer.conversation
        opened = self.open([*history, *new])
        start = prompt.rendering.length
        sampled = self._codec.decode(answer.tokens.ids)
        end, exact = start + len(sampled), True
        if not (opened.startswith(sampled, start) and prompt.rendering.begins(opened)):
            found = self._reworded(answer, prompt.rendering, opened)
            if isinstance(found, Broken):
                return found
            end, exact = found, False
        elif not sampled:
            return Broken("nothing was sampled")
        ids, flags = self._encode(opened, end, history, new)
        return Increment(ids, flags, Rendering.of(opened), exact)

    def _reworded(self, answer: Node, prompt: Rendering, opened: str) -> int | Broken:
        """Where an answer that the template words differently ends in `opened`."""
        try:
            closed = self.close(answer.conversation)
        except ModelError:
            return Broken("the template refuses the history alone")
        if not prompt.begins(closed):
            return Broken("the template rewrites earlier turns once the answer is there")
        ids = answer.tokens.ids
        if answer.stop_reason != "stop" or not ids or ids[-1] not in self._codec.stop_ids:
            return Broken("the answer was cut off or ended by a stop text")
        stop = self._codec.decode(ids[-1:])
        place = closed.rfind(stop, prompt.length)
        if place < 0 and opened.startswith(closed + stop):
            # GLM ends an answer with the token that begins whoever speaks next.
            place, closed = len(closed), closed + stop
        if place < 0:
            return Broken("the template does not end an answer with the token that was sampled")
        end = place + len(stop)
        if not opened.startswith(closed[:end]):
            return Broken("the template rewrites history when new messages come")
        written = self._codec.encode(closed[prompt.length : end])
        if self._codec.marks(written) != self._codec.marks(ids):
            return Broken("the template writes the answer with other special tokens")
        return end

    def _encode(
        self, opened: str, end: int, history: Sequence[Message], new: Sequence[Message]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids of `opened` from `end` on; where tools and others speak, each has its flag."""
        ids = self._codec.encode(opened[end:])
        pieces: list[tuple[int, int]] = []
        start = end
        for until in range(1, len(new)):
            if (new[until].role == "tool") == (new[until - 1].role == "tool"):
                continue
            try:
                border = self.close([*history, *new[:until]])
            except ModelError:
                continue
            if opened.startswith(border):
                flag = TOOL if new[until - 1].role == "tool" else PROMPT
                pieces.append((len(self._codec.encode(opened[start : len(border)])), flag))
                start = len(border)
        last = TOOL if new[-1].role == "tool" else PROMPT
        pieces.append((len(self._codec.encode(opened[start:])), last))
        if sum(count for count, _ in pieces) != len(ids):
            pieces = [(len(ids), last)]  # a token spans the border: one flag for all
        flags = tuple(flag for count, flag in pieces for _ in range(count))
        return tuple(ids), flags
