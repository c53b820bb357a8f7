"""What one GRPO step consists of, for both sides of the comparison. Standard library only."""

import json
import random
import sys
from dataclasses import dataclass

GROUP = 8
PROMPTS = 4


@dataclass(frozen=True)
class Shape:
    """4 prompts × 8 answers; every answer has a length fixed in advance."""

    name: str
    prompt_tokens: int
    shortest: int
    longest: int
    peer_micro_batch: int
    """Sequences a micro-batch that suit TRL best on two cores (found with --tune)."""

    def lengths(self, step: int) -> list[int]:
        """Answer lengths of the step, prompt by prompt: even in their logarithm."""
        if self.shortest == self.longest:
            return [self.longest] * (PROMPTS * GROUP)
        draw = random.Random(step)
        ratio = self.longest / self.shortest
        return [round(self.shortest * ratio ** draw.random()) for _ in range(PROMPTS * GROUP)]


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("short", 40, 48, 48, 32),
        Shape("long-prompt", 256, 64, 64, 8),
        Shape("mixed", 40, 8, 256, 8),
    )
}

WORDS = ("sea", "hill", "snow", "rain", "spring", "walk", "night", "stars", "water", "the", "and")


def prompts(shape: Shape, count_tokens) -> list[str]:
    """Four different texts of exactly that many tokens."""
    texts = []
    for number in range(PROMPTS):
        draw = random.Random(number)
        text = f"Topic {number}:"
        while (missing := shape.prompt_tokens - count_tokens(text)) > 0:
            text += "".join(f" {draw.choice(WORDS)}" for _ in range(max(1, missing // 2)))
        assert count_tokens(text) == shape.prompt_tokens, "every word is one token"
        texts.append(text)
    return texts


def wait_for_turn() -> bool:
    """Whether the other side of the pipe asks for another step."""
    return sys.stdin.readline().strip() == "step"


def tell(**values) -> None:
    """One line of JSON to the other side."""
    sys.__stdout__.write(json.dumps(values) + "\n")
    sys.__stdout__.flush()


def peak_memory_gib() -> float:
    """The largest resident size of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20
