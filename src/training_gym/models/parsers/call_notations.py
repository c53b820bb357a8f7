"""How families write calls whose arguments are JSON: what a grammar of answers is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CallNotation:
    """The texts around a call: `opening (before name middle arguments behind)… closing`."""

    before: str
    middle: str
    behind: str = ""
    opening: str = ""
    closing: str = ""
    between: str | None = ""
    """What divides several calls; None: an answer has only one."""
    mark: str = ""
    """What no text in front of a call can hold; empty: calls stand alone in their answers."""
    told_by: str = ""
    """What stands in the templates that write it, where their family has several."""


HERMES = CallNotation(
    before='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    behind="}\n</tool_call>",
    between="\n",
    mark="<tool_call>",
)
LLAMA = CallNotation(before='{"name": "', middle='", "parameters": ', behind="}", between="; ")
GLM4 = CallNotation(before="", middle="\n", between=None)
MISTRAL_LISTED = CallNotation(
    opening="[TOOL_CALLS][",
    before='{"name": "',
    middle='", "arguments": ',
    behind="}",
    closing="]",
    between=", ",
    mark="[TOOL_CALLS]",
)
MISTRAL_NAMED = CallNotation(
    before="[TOOL_CALLS]", middle="[ARGS]", mark="[TOOL_CALLS]", told_by="[ARGS]"
)
DEEPSEEK = CallNotation(
    opening="<｜tool▁calls▁begin｜>",
    before="<｜tool▁call▁begin｜>",
    middle="<｜tool▁sep｜>",
    behind="<｜tool▁call▁end｜>",
    closing="<｜tool▁calls▁end｜>",
    mark="<｜tool▁calls▁begin｜>",
)
DEEPSEEK_FENCED = CallNotation(
    opening="<｜tool▁calls▁begin｜>",
    before="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    middle="\n```json\n",
    behind="\n```<｜tool▁call▁end｜>",
    closing="<｜tool▁calls▁end｜>",
    between="\n",
    mark="<｜tool▁calls▁begin｜>",
    told_by="```json",
)
