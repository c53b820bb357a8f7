"""One GRPO step of ours beside one of TRL's: same weights, prompts, lengths, dtype and threads.

    python benchmarks/grpo_step.py --peer .venv-trl/bin/python [--shapes short,long-prompt,mixed]

Both stay in memory and take turns, step by step; what is printed are medians of the steps after
the first, their ratio, and the share of the arithmetic limit that each phase reached: what the
products of weights would take at the speed of one large product. `--small` takes a random model of
4 M parameters instead of SmolLM2-135M, `--settings default` TRL as it comes, `--tune` looks for
its best micro-batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "grpo"
sys.path.insert(0, str(HERE))

from arithmetic import arithmetic, limit  # noqa: E402
from shapes import SHAPES, Shape  # noqa: E402


class Side:
    """A process that takes a step when asked."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE,
        )
        self.steps: list[dict[str, float]] = []
        self._answer()

    def step(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        self.steps.append(self._answer())

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended: run {self.process.args} to see why")
        return json.loads(line)

    def median(self, name: str) -> float:
        return statistics.median(step[name] for step in self.steps[1:])

    def shares(self, model: str, shape: Shape, operations_per_s: float) -> dict[str, float]:
        """Share of the arithmetic limit in each phase, the median over the steps."""
        found = {}
        for name in PARTS:
            found[name] = statistics.median(
                getattr(arithmetic(model, shape, shape.lengths(number)), name)
                / operations_per_s
                / step[name]
                for number, step in enumerate(self.steps)
                if number
            )
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(Path(folder)) if arguments.small else smollm2()
        for name in arguments.shapes.split(","):
            if arguments.tune:
                tune(arguments, model, SHAPES[name])
            else:
                compare(arguments, model, SHAPES[name])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True, help="a Python that has trl")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--token-budget", type=int, default=1024)
    parser.add_argument("--settings", choices=["best", "default"], default="best")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--tune", action="store_true")
    return parser.parse_args()


def ours(arguments: argparse.Namespace, model: str, shape: Shape) -> Side:
    numbers = [str(arguments.threads), str(arguments.token_budget)]
    return Side("ours", [sys.executable, "ours.py", model, shape.name, *numbers])


def peer(arguments: argparse.Namespace, model: str, shape: Shape, micro_batch: int) -> Side:
    numbers = [str(arguments.threads), str(micro_batch)]
    python = str(Path(arguments.peer).absolute())
    return Side("trl", [python, "peer.py", model, shape.name, *numbers, arguments.settings])


def compare(arguments: argparse.Namespace, model: str, shape: Shape) -> None:
    sides = [
        ours(arguments, model, shape),
        peer(arguments, model, shape, shape.peer_micro_batch),
    ]
    try:
        for _ in range(arguments.rounds):
            for side in sides:
                side.step()
    finally:
        for side in sides:
            side.close()
    print(f"\n{shape.name}: {shape.prompt_tokens} + {shape.shortest}…{shape.longest} tokens")
    for side in sides:
        parts = "  ".join(f"{name} {side.median(name):7.2f} s" for name in PARTS)
        print(f"  {side.name:5} {parts}  peak {side.median('peak_gib'):5.2f} GiB")
    one, other = sides
    ratios = "  ".join(f"{name} {other.median(name) / one.median(name):6.2f}×" for name in PARTS)
    memory = one.median("peak_gib") / other.median("peak_gib")
    print(f"  ratio {ratios}  memory {memory:.2f} of the peer's")
    operations_per_s = limit(arguments.threads)
    print(f"  share of the arithmetic limit, {operations_per_s / 1e9:.0f} GFLOP/s just now:")
    for side in sides:
        shares = side.shares(model, shape, operations_per_s)
        print(f"  {side.name:5} " + "  ".join(f"{name} {shares[name]:7.0%}  " for name in PARTS))
    sys.stdout.flush()


PARTS = ("seconds", "sampling", "training")


def tune(arguments: argparse.Namespace, model: str, shape: Shape) -> None:
    for micro_batch in (4, 8, 16, 32):
        side = peer(arguments, model, shape, micro_batch)
        try:
            for _ in range(arguments.rounds):
                side.step()
            print(shape.name, micro_batch, f"{side.median('seconds'):.2f} s", flush=True)
        except SystemExit:
            print(shape.name, micro_batch, "ended, probably for lack of memory", flush=True)
        finally:
            side.close()


def smollm2() -> str:
    from training_gym.models.catalogue import resolve

    return str(resolve("smollm2-135m", say=lambda line: print(line, file=sys.stderr)))


def small_model(folder: Path) -> str:
    """Random weights in SmolLM2's layout, with its tokenizer: about 4 M parameters."""
    import shutil

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    source = smollm2()
    config = AutoConfig.from_pretrained(source)
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = 64, 256, 6
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 4, 2, 16
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for file in Path(source).glob("*token*"):
        shutil.copy(file, folder)
    for name in ("vocab.json", "merges.txt", "special_tokens_map.json", "chat_template.jinja"):
        if (Path(source) / name).exists():
            shutil.copy(Path(source) / name, folder)
    return str(folder)


if __name__ == "__main__":
    main()
