"""A tokenizer's chat template, compiled once and rendered without detours.

What `apply_chat_template` does for every call besides rendering (choosing the template, copying
messages to plain data, giving reasoning its names) is done by us already or needed once. The
environment stays that of `transformers`: templates are code of strangers, and it is the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Values = Sequence[dict[str, Any]]
"""Messages or tools as plain data, no value of them None."""


class ChatTemplate:
    """Renders conversations as the tokenizer's own `apply_chat_template` does."""

    def __init__(self, tokenizer: Any) -> None:
        """Nothing is compiled before it is used."""
        self._tokenizer = tokenizer
        self._writers: dict[bool, Callable[..., str]] = {}

    def render(self, messages: Values, tools: Values, *, add_generation_prompt: bool) -> str:
        """The text of a conversation; raises what the template raises."""
        with_tools = bool(tools)
        write = self._writers.get(with_tools)
        if write is None:
            write = self._writers[with_tools] = self._compiled(tools)
        return write(messages, tools, add_generation_prompt)

    def _compiled(self, tools: Values) -> Callable[..., str]:
        from transformers.utils import chat_template_utils

        compiling = getattr(chat_template_utils, "_compile_jinja_template", None)
        if compiling is None:  # another release's inner name: the public way is slower, no more
            return self._applied
        compiled = compiling(self._tokenizer.get_chat_template(None, list(tools) or None))
        constants = {**compiled.globals, **self._tokenizer.special_tokens_map, "documents": None}

        def write(messages: Values, tools: Values, add_generation_prompt: bool) -> str:
            values = {
                **constants,
                "messages": messages,
                "tools": tools or None,
                "add_generation_prompt": add_generation_prompt,
            }
            # Shared, the context takes the values as they are: copying jinja's chained globals
            # costs more than writing a short conversation.
            context = compiled.new_context(values, shared=True)
            return "".join(compiled.root_render_func(context))

        return write

    def _applied(self, messages: Values, tools: Values, add_generation_prompt: bool) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                messages,
                tools=tools or None,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        )
