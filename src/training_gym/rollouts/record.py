"""The token record of one episode's conversations: what was rendered, what was sampled, exactly.

A request whose messages mean what a recorded path says continues that path: its prompt is the
recorded ids plus the template's rendering of only the new messages. Otherwise a new path is opened,
rendered as a whole. What was sampled is never encoded again on the path where it was sampled.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from training_gym.rollouts.drift import DriftBudget
from training_gym.rollouts.graph import Node, Rendering, Tokens, leaves, trajectory
from training_gym.rollouts.increments import Broken, Increment, Template
from training_gym.rollouts.meaning import meaning, same_messages, tools_meaning
from training_gym.spec.drift import DriftLimits
from training_gym.spec.episodes import PROMPT, Fidelity, PromptKind, Trajectory
from training_gym.spec.messages import Message, ToolSpec, user
from training_gym.spec.sampling import Completion
from training_gym.spec.text import TextCodec


@dataclass(eq=False)
class Conversation:
    """A graph's root: one agent's opening with the tools it was offered."""

    agent: str
    root: Node


class _Openings:
    """The roots of one agent's conversations, found by what they say.

    An episode may open thousands, and every request looks for its own.
    """

    def __init__(self) -> None:
        self._by_meaning: dict[int, dict[Hashable, list[tuple[int, Node]]]] = {}
        self._by_text: dict[Rendering | None, list[Node]] = {}
        self._count = 0

    def add(self, root: Node) -> None:
        """One that comes after the others."""
        said = tuple(meaning(message) for message in root.messages)
        same = self._by_meaning.setdefault(len(said), {}).setdefault(said, [])
        same.append((self._count, root))
        self._by_text.setdefault(root.rendering, []).append(root)
        self._count += 1

    def rendered(self, rendering: Rendering) -> Sequence[Node]:
        """Those that the template wrote so."""
        return self._by_text.get(rendering, ())

    def begin(self, messages: Sequence[Message]) -> Iterator[Node]:
        """Those that may begin `messages`, in their order: their reasoning is not compared."""
        longest = max(self._by_meaning, default=0)
        said = tuple(meaning(message) for message in messages[:longest])
        found = (same.get(said[:length], ()) for length, same in self._by_meaning.items())
        return (root for _, root in sorted(itertools.chain(*found), key=lambda known: known[0]))


@dataclass(frozen=True)
class Opened:
    """A prompt to sample from."""

    node: Node
    fidelity: Fidelity
    token_ids: tuple[int, ...] = field(repr=False)


class TokenRecord:
    """All paths of one episode."""

    def __init__(self, codec: TextCodec, drift: DriftLimits | None = None) -> None:
        """An empty record; `drift` says what happens where recorded tokens cannot go on."""
        self._codec = codec
        self._drift = DriftBudget(drift or DriftLimits())
        self._conversations: list[Conversation] = []
        self._openings: dict[tuple[str, Hashable], _Openings] = {}
        self._calls = 0
        self.fidelity: list[Fidelity] = []
        """How each prompt came about."""

    @property
    def forks(self) -> int:
        """Requests whose history had to be rendered anew."""
        return self._drift.forks

    def open(
        self, agent: str, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> Opened:
        """The prompt for `messages`, continued where recorded or else new.

        Raises:
            ModelError: the template refuses the conversation.
            DriftError: recorded history cannot go on, and the limits say to refuse that.
        """
        template = Template(self._codec, tools)
        known = self._longest(agent, messages, tools)
        broken = None
        if known is not None:
            node, length = known
            found = self._continue(agent, template, node, messages[length:])
            if isinstance(found, Opened):
                return self._note(agent, found)
            broken = found.reason
            messages = [*node.conversation, *messages[length:]]
        text = template.open(messages)
        offered = tools_meaning(tools)
        root = self._root(agent, offered, messages, text)
        ids = root.tokens.ids if root else tuple(self._codec.encode(text))
        has_history = any(message.role == "assistant" for message in messages)
        strayed = has_history and any(known.agent == agent for known in self._conversations)
        kind: PromptKind = "forked" if broken or strayed else "opened"
        reason = broken or ("the history is not what was recorded" if strayed else "")
        fidelity = self._fidelity(agent, kind, ids, reason=reason, has_history=has_history)
        self._drift.check(fidelity)
        root = root or self._begin(agent, offered, messages, text, ids)
        return self._note(agent, Opened(root, fidelity, ids))

    def open_raw(self, agent: str, text: str) -> Opened:
        """A prompt that continues a raw text."""
        said = [user(text)]
        node = self._root(agent, "raw", said, text)
        if node is None:
            ids = (*self._codec.begin(), *self._codec.encode(text))
            node = self._begin(agent, "raw", said, text, ids)
        ids = node.tokens.ids
        return self._note(agent, Opened(node, self._fidelity(agent, "opened", ids), ids))

    def answer(
        self, prompt: Node, completion: Completion, message: Message, *, delivered: bool = True
    ) -> Node:
        """Add what was drawn, and the message it amounts to, behind its prompt."""
        ids = completion.token_ids
        ended = completion.stop_reason == "stop" and ids[-1:] != () and self._is_stop(ids[-1])
        self._calls += len(message.tool_calls)
        return Node(
            "sampled",
            (message,),
            Tokens.sampled(completion, ended=ended),
            parent=prompt,
            stop_reason=completion.stop_reason,
            delivered=delivered,
        )

    @property
    def next_call(self) -> int:
        """Number of the next tool call, from which its id is made."""
        return self._calls

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Every path to a last answer; an answer that several share is trained in the first."""
        trained: set[Node] = set()
        return tuple(
            trajectory(conversation.agent, leaf, trained)
            for conversation in self._conversations
            for leaf in leaves(conversation.root)
        )

    def _is_stop(self, token: int) -> bool:
        return token in self._codec.stop_ids

    def _continue(
        self, agent: str, template: Template, node: Node, new: Sequence[Message]
    ) -> Opened | Broken:
        """The prompt behind a sampled node, or why there is none."""
        increment = template.increment(node, new)
        if isinstance(increment, Broken):
            return increment
        before = node.token_ids
        child = self._known_child(node, new, increment)
        kind: PromptKind = "grown" if child or not node.children else "branched"
        reason = ""
        if any(message.role == "assistant" for message in new):
            kind, reason = "forked", "an answer in the history is not what was recorded"
        ids = (*before, *increment.ids)
        fidelity = self._fidelity(
            agent, kind, ids, recorded=len(before), reason=reason, exact=increment.exact
        )
        self._drift.check(fidelity)
        if child is None:
            tokens = Tokens.rendered(increment.ids, increment.flags)
            rendering = increment.rendering
            child = Node("rendered", tuple(new), tokens, parent=node, rendering=rendering)
        return Opened(child, fidelity, ids)

    def _known_child(self, node: Node, new: Sequence[Message], increment: Increment) -> Node | None:
        """The rendered node behind an answer that says the same, if there is one."""
        return next(
            (
                child
                for child in node.children
                if child.tokens.ids == increment.ids and same_messages(child.messages, new)
            ),
            None,
        )

    def _root(
        self, agent: str, tools: Hashable, messages: Sequence[Message], text: str
    ) -> Node | None:
        """The root that begins with the prompt `text`: asked twice, it is not encoded again."""
        for root in self._openings.get((agent, tools), _Openings()).rendered(Rendering.of(text)):
            if same_messages(root.messages, messages):
                return root
        return None

    def _begin(
        self,
        agent: str,
        tools: Hashable,
        messages: Sequence[Message],
        text: str,
        ids: tuple[int, ...],
    ) -> Node:
        """A new conversation that begins with this prompt."""
        tokens = Tokens.rendered(ids, (PROMPT,) * len(ids))
        root = Node("rendered", tuple(messages), tokens, rendering=Rendering.of(text))
        self._conversations.append(Conversation(agent, root))
        self._openings.setdefault((agent, tools), _Openings()).add(root)
        return root

    def _longest(
        self, agent: str, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[Node, int] | None:
        """The answer that ends the longest recorded beginning of `messages`, and its length.

        Of two that say the same, the one that was sampled last.
        """
        offered = tools_meaning(tools)
        best: tuple[Node, int] | None = None
        for root in self._openings.get((agent, offered), _Openings()).begin(messages):
            waiting = [(root, 0)]
            while waiting:
                node, start = waiting.pop()
                end = start + len(node.messages)
                if end >= len(messages) or not same_messages(node.messages, messages[start:end]):
                    continue
                if node.kind == "sampled" and (best is None or end >= best[1]):
                    best = (node, end)
                waiting += [(child, end) for child in reversed(node.children)]
        return best

    def _fidelity(
        self,
        agent: str,
        kind: PromptKind,
        ids: Sequence[int],
        *,
        recorded: int = 0,
        reason: str = "",
        exact: bool = True,
        has_history: bool = False,
    ) -> Fidelity:
        return Fidelity(
            agent=agent,
            kind=kind,
            reason=reason,
            prompt_tokens=len(ids),
            recorded_tokens=recorded,
            exact=exact,
            has_history=has_history or recorded > 0,
        )

    def constrained(self, opened: Opened) -> Opened:
        """The latest prompt, whose answer is held to a form."""
        self.fidelity[-1] = opened.fidelity.changed(constrained=True)
        return replace(opened, fidelity=self.fidelity[-1])

    def _note(self, agent: str, opened: Opened) -> Opened:
        self.fidelity.append(opened.fidelity)
        return opened
