"""What tasks ask and answers say in demo runs, and the tokens they are made of."""

from __future__ import annotations

import re
from random import Random

from training_gym.spec.messages import Message, ToolCall, system, user

_PIECES = re.compile(r" ?[^\W\d_]+| ?\d|\s|[^\w\s]|_")
_THINGS = ("apples", "tickets", "marbles", "stamps", "books", "coins", "shells", "pencils")
_PEOPLE = ("Ada", "Emmy", "Grace", "Karen", "Maryam", "Sofia", "Alan", "Kurt", "Leonhard")
_THOUGHTS = (
    "First I write down what is known.",
    "The two numbers have to be added.",
    "Let me check the tens and the units separately.",
    "That carries one over.",
    "So far this looks right.",
    "The remainder does not change the result.",
    "I compare this with an estimate.",
    "Multiplying by ten gives an upper bound.",
    "Half of it is easier to work with.",
    "Now I put the parts together.",
)
_FILLER = (
    "It is worth saying this again in other words.",
    "To be thorough, let us look at it once more.",
    "As noted above, and as will be noted below, the point stands.",
)
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J bell\x07",
    "</td></tr></table><style>*{display:none}</style>",
    "{{constructor.constructor('alert(1)')()}} ${7*7} <%= 7*7 %>",
    "javascript:alert(1) [link](javascript:alert(1)) ‮reversed‬ ​zero​width",
    "half a pair \ud800 and a null \x00 and \ufffe",
    "[bold]rich markup[/bold] [link=file:///etc/passwd]x[/link]",
)
"""Texts that must be shown as text."""


class Vocabulary:
    """Ids for pieces of text, given out as they come."""

    def __init__(self) -> None:
        self.texts: list[str] = ["<|end|>"]
        self._ids = {"<|end|>": 0}

    def encode(self, text: str) -> list[int]:
        """Ids of the text's pieces; joined they give the text again."""
        ids = []
        for piece in _PIECES.findall(text):
            number = self._ids.get(piece)
            if number is None:
                number = self._ids[piece] = len(self.texts)
                self.texts.append(piece)
            ids.append(number)
        return ids


def question(random: Random) -> tuple[str, str]:
    """A word problem and its answer."""
    a, b, c = random.randint(12, 95), random.randint(3, 60), random.randint(2, 9)
    person, thing = random.choice(_PEOPLE), random.choice(_THINGS)
    if random.random() < 0.5:
        text = f"{person} has {a} {thing} and gets {b} more. How many {thing} are there now?"
        return text, str(a + b)
    text = f"{person} packs {c} boxes with {a} {thing} each. How many {thing} are packed?"
    return text, str(a * c)


def answer(random: Random, words: int, result: str, *, padded: bool) -> str:
    """Thoughts, about so many words, and a result."""
    sentences, count = [], 0
    while count < words:
        sentence = random.choice(_FILLER if padded and random.random() < 0.7 else _THOUGHTS)
        sentences.append(sentence)
        count += len(sentence.split())
    return f"{' '.join(sentences)} The answer is {result}."


def prompt(text: str, *, with_tool: bool) -> tuple[Message, ...]:
    """The messages a task begins with."""
    told = "Solve the problem. End with: The answer is N."
    if with_tool:
        told += " You may run Python with the tool `python`."
    return (system(told), user(text))


def tool_turn(left: int, right: int, number: int) -> tuple[Message, ...]:
    """A call of the sandbox and what it printed."""
    code = f'{{"code": "print({left} + {right})"}}'
    call = ToolCall(id=f"call_{number}", name="python", arguments=code)
    printed = left + right
    return (
        Message(role="assistant", content="I compute this.", tool_calls=(call,)),
        Message(role="tool", content=f"{printed}\n", tool_call_id=call.id, name="python"),
    )


def failing_tool_turn(number: int) -> tuple[Message, ...]:
    """A call of a sandbox that is gone."""
    call = ToolCall(id=f"call_{number}", name="python", arguments='{"code": "print(1)"}')
    return (
        Message(role="assistant", content="I compute this.", tool_calls=(call,)),
        Message(
            role="tool",
            content="exit 1 after 30.0 s\nsandbox: connection refused by the provider",
            tool_call_id=call.id,
            name="python",
        ),
    )
