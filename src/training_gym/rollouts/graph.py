"""Messages and tokens of one episode as a graph; trajectories are its paths.

A node is either *rendered* (new messages and the opening of the answer, as the template writes
them) or *sampled* (one answer, exactly as it was drawn). Nodes never change once they are there:
a conversation that goes on adds a node, one that goes on in two ways adds two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from training_gym.spec.episodes import FORCED, SAMPLED, STOP, Trajectory, chosen
from training_gym.spec.messages import Message
from training_gym.spec.sampling import Completion, StopReason


@dataclass(frozen=True)
class Rendering:
    """A text the template wrote, by its length and digest: kept for every prompt, it is small."""

    length: int
    digest: bytes

    @classmethod
    def of(cls, text: str) -> Rendering:
        """The mark of a text."""
        return cls(len(text), _digest(text))

    def begins(self, text: str) -> bool:
        """Whether `text` begins with the text that was marked."""
        return len(text) >= self.length and _digest(text[: self.length]) == self.digest


@dataclass(frozen=True)
class Tokens:
    """Columns of equal length; see `spec.episodes.Trajectory`."""

    ids: tuple[int, ...] = ()
    flags: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()

    @classmethod
    def rendered(cls, ids: tuple[int, ...], flags: tuple[int, ...]) -> Tokens:
        """Tokens that nobody sampled."""
        return cls(ids, flags, (0.0,) * len(ids), (-1,) * len(ids))

    @classmethod
    def sampled(cls, completion: Completion, *, ended: bool) -> Tokens:
        """What the policy drew; `ended`: by a token that ends a turn, which is then marked so."""
        flags = [SAMPLED] * len(completion.token_ids)
        for place, forced in enumerate(completion.forced):
            flags[place] |= FORCED if forced else 0
        if flags and ended:
            flags[-1] |= STOP
        return cls(completion.token_ids, tuple(flags), completion.logprobs, completion.versions)


@dataclass(eq=False)
class Node:
    """A piece of a conversation; compared by identity."""

    kind: Literal["rendered", "sampled"]
    messages: tuple[Message, ...]
    """What this piece adds to the conversation."""
    tokens: Tokens
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    rendering: Rendering | None = None
    """Of a rendered node: the template's text from the start of the conversation to here."""
    stop_reason: StopReason | None = None
    """Of a sampled node."""
    delivered: bool = True
    """Of a sampled node: whoever asked has got the answer. What nobody got is not trained on."""

    def __post_init__(self) -> None:
        """Become known to the parent."""
        if self.parent is not None:
            self.parent.children.append(self)

    @property
    def path(self) -> list[Node]:
        """From the root to here."""
        found: list[Node] = []
        here: Node | None = self
        while here is not None:
            found.append(here)
            here = here.parent
        return found[::-1]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All ids from the root to here."""
        return tuple(token for node in self.path for token in node.tokens.ids)

    @property
    def conversation(self) -> list[Message]:
        """All messages from the root to here."""
        return [message for node in self.path for message in node.messages]

    @property
    def counts(self) -> bool:
        """Whether this answer was given to somebody, or somebody went on from it."""
        sampled = self.kind == "sampled" and bool(self.tokens.ids)
        return sampled and (self.delivered or bool(self.children))


def leaves(root: Node) -> list[Node]:
    """The last answers of every path below, in the order they were asked for."""
    order: list[Node] = []
    waiting = [root]
    while waiting:  # no recursion: an episode may have thousands of turns
        order.append(waiting.pop())
        waiting += reversed(order[-1].children)
    leading: set[Node] = set()
    """Nodes that count or have one below that does."""
    found: list[Node] = []
    for node in reversed(order):
        if any(child in leading for child in node.children):
            leading.add(node)
        elif node.counts:
            leading.add(node)
            found.append(node)
    return found[::-1]


def trajectory(agent: str, leaf: Node, trained: set[Node]) -> Trajectory:
    """The path to `leaf`; answers in `trained` are context, the others join `trained`."""
    path = leaf.path
    columns = [node.tokens for node in path]
    mask: list[bool] = []
    for node in path:
        fresh = node.kind == "sampled" and node not in trained
        mask += [fresh and chosen(flag) for flag in node.tokens.flags]
        trained |= {node} if fresh else set()
    first = next((place for place, node in enumerate(path) if node.kind == "sampled"), len(path))
    flags = tuple(flag for tokens in columns for flag in tokens.flags)
    by_flags = [chosen(flag) for flag in flags]
    return Trajectory(
        agent=agent,
        token_ids=tuple(token for tokens in columns for token in tokens.ids),
        flags=flags,
        logprobs=tuple(value for tokens in columns for value in tokens.logprobs),
        versions=tuple(version for tokens in columns for version in tokens.versions),
        prompt_length=sum(len(tokens.ids) for tokens in columns[:first]),
        trained=None if mask == by_flags else tuple(mask),
    )


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
