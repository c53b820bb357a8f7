"""A model's tokenizer and chat template, exactly as its own files say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training_gym.models.parsers.answer_grammar import Template, answer_grammar
from training_gym.models.parsers.families import family_of
from training_gym.models.weights.chat_template import ChatTemplate
from training_gym.models.weights.quiet import quiet
from training_gym.models.weights.template_messages import as_template_message, as_template_tool
from training_gym.spec.errors import ModelError
from training_gym.spec.forms import AnswerForm, Grammar
from training_gym.spec.messages import Message, ToolCall, ToolSpec, assistant, user
from training_gym.spec.text import TextCodec

_MARK = "training-gym-marks-this-answer"
"""A text whose end is looked for in a rendered conversation."""

_PROMPT_END = 12
"""Tokens of a prompt's end in which an opened or closed reasoning is seen."""


def load_codec(path: Path | str) -> TextCodec:
    """The codec of a model folder; raises `ModelError` where its tokenizer cannot be read."""
    folder = Path(path)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(
            f"{folder} has no tokenizer.json",
            fix="save the model's fast tokenizer there: AutoTokenizer…save_pretrained(folder)",
        )
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise ModelError(
            f"reading a tokenizer needs {error.name}", fix="pip install 'training-gym[local]'"
        ) from error
    try:
        with quiet():
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # Boundary: tokenizers raises bare Exception for a damaged file.
        raise ModelError(
            f"{folder / 'tokenizer.json'} cannot be read: {error}", fix="fetch the model again"
        ) from error
    return TokenizerCodec(tokenizer, folder)


class TokenizerCodec:
    """A `TextCodec` over a fast tokenizer. Safe to use from several threads."""

    def __init__(self, tokenizer: Any, folder: Path) -> None:
        """Use `load_codec`; `folder` names the model in errors and holds its end tokens."""
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._folder = folder
        self.vocab_size: int = len(tokenizer)
        self.has_chat_template: bool = tokenizer.chat_template is not None
        self._template: str = _template_text(tokenizer.chat_template)
        self._writer = ChatTemplate(tokenizer)
        self._family = family_of(self._template)
        literal = self._family.literal_arguments
        self._literal_arguments: bool = (
            "arguments is string" in self._template if literal is None else literal
        )
        self._media = frozenset(
            kind for kind in ("image", "audio", "video") if f"'{kind}'" in self._template
        )
        self._special: frozenset[int] = frozenset(self._special_ids())
        self._kept = self._ids_of(self._family.special | frozenset(self._family.reasoning or ()))
        self._structure = self._special - self._ids_of(self._family.ornaments)
        self.stop_ids: frozenset[int] = self._find_stop_ids()
        self.pad_id: int = self._find_pad_id()
        self._begin = self._find_begin()

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """The template's text of a conversation.

        Raises:
            ModelError: there is no template, or it refuses this conversation or tools.
        """
        self._check_template(bool(tools))
        from jinja2 import TemplateError

        literal, media = self._literal_arguments, self._media
        try:
            return self._writer.render(
                [as_template_message(m, literal_arguments=literal, media=media) for m in messages],
                [as_template_tool(tool) for tool in tools],
                add_generation_prompt=add_generation_prompt,
            )
        except (TemplateError, TypeError) as error:
            raise ModelError(
                f"the chat template of {self._folder.name} refuses these messages: {error}",
                fix="check the roles and their order; some models know no system or tool role",
            ) from error

    def encode(self, text: str) -> list[int]:
        """Ids of exactly this text: special tokens in it are recognised, none are added."""
        try:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        except (UnicodeEncodeError, TypeError) as error:
            raise ModelError(
                f"a text cannot be encoded: {text[:60]!r}", fix="remove its lone surrogates"
            ) from error

    def begin(self) -> tuple[int, ...]:
        """Ids the model expects before a raw text (its begin token, if it wants one)."""
        return self._begin

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens included."""
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def decode_visible(self, ids: Sequence[int]) -> str:
        """Text of the ids without special tokens."""
        return str(self._backend.decode(list(ids), skip_special_tokens=True))

    def marks(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The special tokens among the ids, in order."""
        return tuple(index for index in ids if index in self._structure)

    def read_answer(
        self,
        ids: Sequence[int],
        *,
        after: Sequence[int] = (),
        tools: Sequence[ToolSpec] = (),
        first_call: int = 0,
    ) -> Message:
        """See `spec.text.TextCodec`. Special tokens are left out, but for the family's notation."""
        body = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        shown = [index for index in body if index not in self._special or index in self._kept]
        end = self.decode(after[-_PROMPT_END:]) if self._family.reasoning else ""
        parsed = self._family.read(self.decode(shown), end, tools)
        calls = tuple(
            ToolCall(id=f"call{first_call + number:05d}", name=call.name, arguments=call.arguments)
            for number, call in enumerate(parsed.calls)
        )
        return Message(
            role="assistant", content=parsed.content, reasoning=parsed.reasoning, tool_calls=calls
        )

    def grammar(
        self,
        form: AnswerForm,
        *,
        after: Sequence[int] = (),
        tools: Sequence[ToolSpec] = (),
        raw: bool = False,
    ) -> Grammar:
        """See `spec.text.TextCodec`."""
        # llguidance takes every added token in pointed brackets for a special one.
        tokens = self._backend.get_added_tokens_decoder()
        special = {
            token.content: index
            for index, token in tokens.items()
            if token.special or (token.content[:1] == "<" and token.content[-1:] == ">")
        }
        template = Template(self._family, self._template, special)
        end = self.decode(after[-_PROMPT_END:])
        return answer_grammar(template, form, after=end, tools=tools, raw=raw)

    def tokenizer_json(self) -> str:
        """See `spec.text.TextCodec`."""
        return str(self._backend.to_str())

    def _ids_of(self, texts: frozenset[str]) -> frozenset[int]:
        """The special tokens among `texts`."""
        tokens = self._backend.get_added_tokens_decoder()
        return frozenset(
            i for i, token in tokens.items() if token.special and token.content in texts
        )

    def _check_template(self, with_tools: bool) -> None:
        if not self.has_chat_template:
            raise ModelError(
                f"{self._folder.name} has no chat template: it is a base model",
                fix="give prompts as plain texts to complete, or take an instruct model",
            )
        if with_tools and "tools" not in self._template:
            raise ModelError(
                f"the chat template of {self._folder.name} takes no tools",
                fix="describe the tools in the system message, or take a model that knows tools",
            )

    def _find_stop_ids(self) -> frozenset[int]:
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            found |= _end_ids(self._folder / name)
        if self._tokenizer.eos_token_id is not None:
            found.add(self._tokenizer.eos_token_id)
        found |= self._end_of_turn()
        return frozenset(index for index in found if 0 <= index < self.vocab_size)

    def _end_of_turn(self) -> set[int]:
        """The special token that the template writes right after an answer."""
        if not self.has_chat_template:
            return set()
        try:
            text = self.render([user("?"), assistant(_MARK)], add_generation_prompt=False)
        except ModelError:
            return set()  # A template that wants more than this says so when it is used.
        after = self.encode(text.rpartition(_MARK)[2])[:1]
        return {index for index in after if index in self._special_ids()}

    def _special_ids(self) -> set[int]:
        added = self._backend.get_added_tokens_decoder()
        return {index for index, token in added.items() if token.special}

    def _find_pad_id(self) -> int:
        """A valid id, no stop token where there is a choice: nothing may read meaning into it."""
        pad = self._tokenizer.pad_token_id
        if pad is not None and pad not in self.stop_ids:
            return int(pad)
        others = sorted(self._special_ids() - self.stop_ids)
        return others[0] if others else int(pad or 0)

    def _find_begin(self) -> tuple[int, ...]:
        bare = self._backend.encode("a", add_special_tokens=False).ids
        full = self._backend.encode("a", add_special_tokens=True).ids
        extra = len(full) - len(bare)
        starts = (n for n in range(extra + 1) if full[n : n + len(bare)] == bare)
        return tuple(full[: next(starts, 0)])


def _template_text(template: str | dict[str, str] | None) -> str:
    if isinstance(template, dict):
        return "\n".join(template.values())
    return template or ""


def _end_ids(file: Path) -> set[int]:
    """`eos_token_id` of a configuration file: an id, several, or none."""
    if not file.is_file():
        return set()
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is damaged: {error}", fix="fetch the model again") from error
    found: set[int] = set()
    for part in (config, config.get("text_config") or {}):
        ids = part.get("eos_token_id")
        found |= {ids} if isinstance(ids, int) else set(ids or ())
    return found
