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


HERMES = CallNotation(
    before='<tool_call>\n{"name": "',
    middle='", "arguments": ',
    behind="}\n</tool_call>",
    between="\n",
    mark="<tool_call>",
)
LLAMA = CallNotation(before='{"name": "', middle='", "parameters": ', behind="}", between="; ")
GLM4 = CallNotation(before="", middle="\n", between=None)
_MISTRAL_LISTED = CallNotation(
    opening="[TOOL_CALLS][",
    before='{"name": "',
    middle='", "arguments": ',
    behind="}",
    closing="]",
    between=", ",
    mark="[TOOL_CALLS]",
)
_MISTRAL_NAMED = CallNotation(before="[TOOL_CALLS]", middle="[ARGS]", mark="[TOOL_CALLS]")
_DEEPSEEK = CallNotation(
    opening="<｜tool▁calls▁begin｜>",
    before="<｜tool▁call▁begin｜>",
    middle="<｜tool▁sep｜>",
    behind="<｜tool▁call▁end｜>",
    closing="<｜tool▁calls▁end｜>",
    mark="<｜tool▁calls▁begin｜>",
)
_DEEPSEEK_FENCED = CallNotation(
    opening="<｜tool▁calls▁begin｜>",
    before="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    middle="\n```json\n",
    behind="\n```<｜tool▁call▁end｜>",
    closing="<｜tool▁calls▁end｜>",
    between="\n",
    mark="<｜tool▁calls▁begin｜>",
)


def hermes(template: str) -> CallNotation:
    """Hermes, Qwen2.5, Qwen3, SmolLM3."""
    return HERMES


def llama(template: str) -> CallNotation:
    """Llama 3."""
    return LLAMA


def glm4(template: str) -> CallNotation:
    """GLM-4."""
    return GLM4


def mistral(template: str) -> CallNotation:
    """Mistral, before and since its calls are named in front of their arguments."""
    return _MISTRAL_NAMED if "[ARGS]" in template else _MISTRAL_LISTED


def deepseek(template: str) -> CallNotation:
    """DeepSeek V3 and R1 fence the arguments, V3.1 does not."""
    return _DEEPSEEK_FENCED if "```json" in template else _DEEPSEEK
