"""The token record of one agent's conversation: what was rendered, what was sampled, exactly.

A request whose messages continue those of a recorded path grows that path: its prompt is the
recorded ids plus the rendering of only the new messages. Otherwise a new path is opened, rendered
as a whole. What was sampled is never encoded again on the path where it was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from training_gym.spec.episodes import PROMPT, SAMPLED, STOP, TOOL, Trajectory
from training_gym.spec.errors import ModelError
from training_gym.spec.messages import Message, ToolSpec, assistant, user
from training_gym.spec.sampling import Completion
from training_gym.spec.text import TextCodec


@dataclass
class Path:
    """A conversation and its tokens, growing together."""

    agent: str
    messages: list[Message]
    token_ids: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    prompt_length: int = 0
    ended_with_stop: bool = True

    def add_rendered(self, ids: Sequence[int], flag: int) -> None:
        """Append tokens that were not sampled."""
        self.token_ids.extend(ids)
        self.flags.extend([flag] * len(ids))
        self.logprobs.extend([0.0] * len(ids))
        self.versions.extend([-1] * len(ids))

    def add_sampled(self, completion: Completion, message: Message) -> None:
        """Append what the policy drew, and the message it amounts to."""
        self.token_ids.extend(completion.token_ids)
        flags = [SAMPLED] * len(completion.token_ids)
        self.ended_with_stop = completion.stop_reason == "stop"
        if flags and self.ended_with_stop:
            flags[-1] |= STOP
        self.flags.extend(flags)
        self.logprobs.extend(completion.logprobs)
        self.versions.extend(completion.versions)
        self.messages.append(message)

    def trajectory(self) -> Trajectory:
        """The path as the trainer takes it."""
        return Trajectory(
            agent=self.agent,
            token_ids=tuple(self.token_ids),
            flags=tuple(self.flags),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            prompt_length=self.prompt_length,
        )


class TokenRecord:
    """All paths of one episode."""

    def __init__(self, codec: TextCodec) -> None:
        """An empty record."""
        self._codec = codec
        self.paths: list[Path] = []
        self.forks = 0
        """Requests whose history differed from what was recorded."""

    def open(self, agent: str, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Path:
        """The path that ends with the prompt for `messages`, grown or new."""
        known = self._longest(agent, messages)
        if known is not None:
            new = messages[len(known.messages) :]
            increment = self._increment(known, new, tools)
            if increment is not None:
                flag = TOOL if all(message.role == "tool" for message in new) else PROMPT
                known.add_rendered(increment, flag)
                known.messages.extend(new)
                return known
        if any(path.agent == agent for path in self.paths):
            self.forks += 1
        text = self._codec.render(messages, tools=tools, add_generation_prompt=True)
        return self._new(agent, list(messages), self._codec.encode(text))

    def open_raw(self, agent: str, text: str) -> Path:
        """A new path that continues a raw text."""
        ids = [*self._codec.begin(), *self._codec.encode(text)]
        return self._new(agent, [user(text)], ids)

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Every path on which something was sampled."""
        found = [path.trajectory() for path in self.paths]
        return tuple(trajectory for trajectory in found if trajectory.num_sampled)

    def _new(self, agent: str, messages: list[Message], ids: list[int]) -> Path:
        path = Path(agent, messages)
        path.add_rendered(ids, PROMPT)
        path.prompt_length = len(ids)
        self.paths.append(path)
        return path

    def _longest(self, agent: str, messages: Sequence[Message]) -> Path | None:
        """The longest path of this agent whose messages begin `messages`."""
        fitting = [
            path
            for path in self.paths
            if path.agent == agent
            and len(path.messages) < len(messages)
            and list(messages[: len(path.messages)]) == path.messages
            and path.messages[-1].role == "assistant"
        ]
        return max(fitting, key=lambda path: len(path.messages), default=None)

    def _increment(
        self, path: Path, new: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> list[int] | None:
        """Ids between the sampled answer and the next one; None where they cannot be known.

        The template's text for the new messages is the difference of two renderings of a stand-in
        conversation, taken from behind the stop token, so that what the template puts after a
        turn (Qwen's newline) is kept. An answer that was cut off, or that a stop text ended, has no
        such place.
        """
        last = path.token_ids[-1] if path.token_ids else None
        if not path.ended_with_stop or last not in self._codec.stop_ids:
            return None
        stop = self._codec.decode([last])
        stand_in = [user("a"), assistant("b")]
        try:
            before = self._codec.render(stand_in, tools=tools, add_generation_prompt=False)
            after = self._codec.render([*stand_in, *new], tools=tools, add_generation_prompt=True)
        except ModelError:
            return None
        end = before.rfind(stop)
        if end < 0 or not after.startswith(before):
            return None
        return self._codec.encode(after[end + len(stop) :])
