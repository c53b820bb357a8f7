"""What a step costs in floating point operations, and how many this machine does a second.

Counted are the products of weights, two operations each: forward once, backward twice. A group's
prompt counts once. Attention, norms and the choice of tokens are not counted, so that the share of
the limit says what all of these cost.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from shapes import GROUP, PROMPTS, Shape


@dataclass(frozen=True)
class Arithmetic:
    """Operations of each phase of one step."""

    sampling: float
    training: float

    @property
    def seconds(self) -> float:
        """Named as the phase of the whole step."""
        return self.sampling + self.training


def arithmetic(model: str, shape: Shape, lengths: list[int]) -> Arithmetic:
    """Of one step whose answers have these lengths."""
    body, head = weights(model)
    prompts, answers = PROMPTS * shape.prompt_tokens, sum(lengths)
    assert len(lengths) == PROMPTS * GROUP
    return Arithmetic(
        sampling=2 * (body * (prompts + answers) + head * answers),
        training=6 * (body * (prompts + answers) + head * answers),
    )


def weights(model: str) -> tuple[int, int]:
    """Weights that every token is multiplied with: in the layers, and in the head."""
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    layer = 2 * hidden * head_dim * (heads + key_heads) + 3 * hidden * inner
    return config["num_hidden_layers"] * layer, hidden * config["vocab_size"]


def limit(threads: int, size: int = 1536, tries: int = 8) -> float:
    """Operations a second of a large float32 product, the best of some tries."""
    import torch

    torch.set_num_threads(threads)
    one, other = torch.randn(size, size), torch.randn(size, size)
    torch.mm(one, other)
    best = float("inf")
    for _ in range(tries):
        started = time.perf_counter()
        torch.mm(one, other)
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best
