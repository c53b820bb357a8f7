"""Between messages and token ids: the seam over a model's tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from training_gym.spec.forms import AnswerForm, Grammar
from training_gym.spec.messages import Message, ToolSpec


class TextCodec(Protocol):
    """A model's tokenizer and chat template, as the model's own files say."""

    stop_ids: frozenset[int]
    """Tokens that end a turn."""
    pad_id: int
    vocab_size: int
    has_chat_template: bool

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """The template's text of a conversation; raises `ModelError` where there is no template."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of exactly this text: special tokens in it are recognised, none are added."""
        ...

    def begin(self) -> tuple[int, ...]:
        """Ids the model expects before a raw text (its begin token, if it wants one)."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens included."""
        ...

    def decode_visible(self, ids: Sequence[int]) -> str:
        """Text of the ids without special tokens."""
        ...

    def marks(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The special tokens among the ids, in order: a text's structure without its words."""
        ...

    def read_answer(
        self,
        ids: Sequence[int],
        *,
        after: Sequence[int] = (),
        tools: Sequence[ToolSpec] = (),
        first_call: int = 0,
    ) -> Message:
        """The assistant message that sampled ids amount to, as the model's family writes it.

        Args:
            ids: what was sampled, with or without the token that ended the turn.
            after: the prompt it continues, which may have opened the reasoning already.
            tools: what was offered; without tools nothing is read as a call.
            first_call: number of the first call, from which calls get their ids.
        """
        ...

    def grammar(
        self,
        form: AnswerForm,
        *,
        after: Sequence[int] = (),
        tools: Sequence[ToolSpec] = (),
        raw: bool = False,
    ) -> Grammar:
        """The grammar of answers of this form, as the model's family writes them.

        Args:
            form: raises `FormError` where the family's notation cannot be held to it.
            after: the prompt that is answered, which may have opened the reasoning already.
            tools: what was offered.
            raw: a text goes on: there is neither reasoning nor a call.
        """
        ...

    def tokenizer_json(self) -> str:
        """The tokenizer as a file of the `tokenizers` library, which holds all its tokens."""
        ...
