"""Which family a chat template belongs to, and how its answers are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training_gym.models.parsers import call_notations, json_calls, marked_calls
from training_gym.models.parsers.call_notations import CallNotation
from training_gym.models.parsers.harmony import read_harmony
from training_gym.models.parsers.parsed import CallReader, Parsed
from training_gym.models.parsers.reasoning import split_reasoning
from training_gym.spec.messages import ToolSpec

_THINK = ("<think>", "</think>")
_DEEPSEEK_MARKS = frozenset(
    f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
)


@dataclass(frozen=True)
class Family:
    """How one family of models writes what is more than text."""

    name: str
    marks: tuple[str, ...]
    """Texts that all occur in its templates."""
    calls: CallReader | None = None
    reasoning: tuple[str, str] | None = None
    """What opens and closes reasoning, where the template knows it."""
    special: frozenset[str] = frozenset()
    """Special tokens that its notation consists of."""
    ornaments: frozenset[str] = frozenset()
    """Of these, what changes nothing: models write it, templates may not."""
    literal_arguments: bool | None = None
    """Whether templates take arguments as text; None: as each template says itself."""
    channels: bool = False
    """Whether an answer is several messages (gpt-oss)."""
    notations: tuple[CallNotation, ...] = ()
    """The ways in which its templates write calls whose arguments are JSON; the first that a
    template tells of is its own."""

    def notation(self, template: str) -> CallNotation | None:
        """How a template of the family writes calls; None where their arguments are no JSON."""
        return next((each for each in self.notations if each.told_by in template), None)

    def read(self, text: str, after: str, tools: Sequence[ToolSpec]) -> Parsed:
        """Take an answer apart.

        Args:
            text: the answer without the token that ended it.
            after: the end of the prompt.
            tools: what was offered; nothing else is a call.
        """
        if self.channels:
            return read_harmony(text, tools)
        reasoning, rest = None, text
        if self.reasoning is not None:
            reasoning, rest = split_reasoning(text, after, self.reasoning)
        found = self.calls(rest, tools) if self.calls is not None and tools else None
        if found is None:
            return Parsed(rest, reasoning)
        return Parsed(found.content, reasoning, found.calls)


FAMILIES = (
    Family(
        "harmony",
        ("<|channel|>", "<|message|>"),
        special=frozenset(
            f"<|{name}|>"
            for name in ("start", "channel", "message", "constrain", "end", "return", "call")
        ),
        ornaments=frozenset(("<|constrain|>",)),
        channels=True,
    ),
    Family(
        "deepseek",
        ("<｜tool▁calls▁begin｜>",),
        json_calls.deepseek_calls,
        _THINK,
        _DEEPSEEK_MARKS,
        literal_arguments=True,
        notations=(call_notations.DEEPSEEK_FENCED, call_notations.DEEPSEEK),
    ),
    Family(
        "gemma4",
        ("<|tool_call>",),
        marked_calls.gemma_calls,
        ("<|channel>thought\n", "<channel|>"),
        frozenset(("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>")),
        literal_arguments=False,
    ),
    Family(
        "mistral",
        ("[TOOL_CALLS]",),
        json_calls.mistral_calls,
        ("[THINK]", "[/THINK]"),
        frozenset(("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")),
        notations=(call_notations.MISTRAL_NAMED, call_notations.MISTRAL_LISTED),
    ),
    Family("glm", ("<arg_key>",), marked_calls.glm_calls, _THINK, literal_arguments=False),
    Family("glm4", ("<|observation|>",), json_calls.glm4_calls, notations=(call_notations.GLM4,)),
    Family("qwen_xml", ("<function=", "<parameter="), marked_calls.qwen_calls, _THINK),
    Family(
        "hermes",
        ("<tool_call>",),
        json_calls.hermes_calls,
        _THINK,
        notations=(call_notations.HERMES,),
    ),
    Family(
        "llama3",
        ("<|start_header_id|>", "tools"),
        json_calls.llama_calls,
        special=frozenset(("<|python_tag|>",)),
        notations=(call_notations.LLAMA,),
    ),
    Family("thinking", ("<think>",), reasoning=_THINK),
    Family("plain", ()),
)
"""From the most particular to the most general: the first whose marks all occur is the family."""


def family_of(template: str) -> Family:
    """The family whose notation a chat template writes."""
    return next(family for family in FAMILIES if all(mark in template for mark in family.marks))
