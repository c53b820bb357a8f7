"""The generated half of docs/algorithms.md: algorithms and their options, from the code itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training_gym.engines.local.engine import LocalEngine
from training_gym.spec.algorithms import (
    ALGORITHMS,
    Distill,
    FullVocabulary,
    GivenAnswers,
    SampledTokens,
)
from training_gym.spec.loss_terms import MIS, TIS, IcePop, LossKL, RewardKL
from training_gym.spec.recipe import RECIPES, Recipe
from training_gym.spec.run import RunSpec
from training_gym.spec.settings import Settings

PAGE = Path(__file__).parent / "algorithms.md"
BEGIN, END = "<!-- generated from the code -->", "<!-- end -->"

CHANGES = {
    "GRPO": "advantage: distance from the group's mean over its standard deviation; clipped ratios",
    "DrGRPO": "no division by the standard deviation, nor by the answer's length",
    "DAPO": "higher upper clip, mean over tokens, groups without signal are replaced, long answers "
    "lose reward",
    "GSPO": "one ratio a trajectory: the geometric mean of its tokens' ratios",
    "CISPO": "the ratio is a bounded weight; no token's gradient is stopped",
    "RLOO": "baseline: the mean of the group's others; a whole answer is one action",
    "ReinforcePlusPlus": "rewards to go, normalised over the batch; needs no groups",
    "PPO": "advantages by GAE from a value head; targets with clipping",
    "Distill": "a teacher's opinion of each sampled token instead of a reward",
    "SFT": "maximum likelihood of given answers",
    "DPO": "chosen answers become likelier than rejected ones, near to a reference",
    "SimPO": "the same without a reference, by mean log-probability and with a margin",
}

SETTINGS: dict[str, dict[str, Any]] = {
    "group_size": {"group_size": 4},
    "optimizer_steps_per_batch": {"optimizer_steps_per_batch": 2},
    "more updates than prompts_per_batch": {"optimizer_steps_per_batch": 9},
    "max_turns, with an environment": {"max_turns": 3},
    "max_staleness (deterministic=False)": {
        "max_staleness": 2,
        "engine": {"deterministic": False},
    },
    "sampling.temperature = 0.7": {"sampling": {"temperature": 0.7}},
    "sampling.temperature = 0": {"sampling": {"temperature": 0}},
    "sampling.top_p, top_k, min_tokens": {"sampling": {"top_p": 0.9, "top_k": 5, "min_tokens": 2}},
    "adapter": {"adapter": {}},
}
"""What the table of support is made of; others are honoured by all or belong to one algorithm."""


def page() -> str:
    """The page with the present code's half between its marks."""
    before, rest = PAGE.read_text().split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n\n{_generated()}\n\n{END}{after}"


def _generated() -> str:
    parts = ["| algorithm | by name | paper | what it changes |\n| --- | --- | --- | --- |"]
    parts[0] += "".join(f"\n{_row(kind)}" for kind in ALGORITHMS)
    for kind in ALGORITHMS:
        parts += [f"### `{kind.__name__}`", text_of(kind), options_of(kind)]
        if kind is Distill:
            for loss in (SampledTokens, FullVocabulary):
                parts += [f"`loss={loss.__name__}(…)`: {text_of(loss)}", options_of(loss)]
    parts.append("### Terms of the loss")
    for term in (LossKL, RewardKL, TIS, MIS, IcePop):
        name = "kl" if term in (LossKL, RewardKL) else "correction"
        parts += [f"`{name}={term.__name__}(…)`: {text_of(term)}", options_of(term)]
    parts += ["### What the embedded engine honours", "\n".join(_support())]
    return "\n\n".join(parts)


def _row(kind: type[Settings]) -> str:
    papers = re.findall(r"arXiv:(\d{4}\.\d{5})", inspect.getdoc(kind) or "")
    links = ", ".join(f"arXiv:{number}" for number in papers) or "–"
    return f"| `{kind.__name__}` | {_names(kind)} | {links} | {CHANGES[kind.__name__]} |"


def _names(kind: type[Settings]) -> str:
    named = [f'`"{name}"`' for name, r in RECIPES.items() if type(r.algorithm) is kind]
    return ", ".join(named) or "–"


def text_of(kind: type[Settings]) -> str:
    """What a value is, in one paragraph."""
    return " ".join((inspect.getdoc(kind) or "").split())


def options_of(kind: type[Settings]) -> str:
    """A table of a value's fields, with defaults and meaning."""
    fields = {name: field for name, field in kind.model_fields.items() if name != "kind"}
    if not fields:
        return "No options."
    rows = ["| option | default | meaning |", "| --- | --- | --- |"]
    for name, field in fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "*needed*" if field.is_required() else f"`{default!r}`"
        if isinstance(default, Settings):
            shown = f"`{type(default).__name__}()`"
        meaning = " ".join((field.description or _inherited(kind, name)).split())
        rows.append(f"| `{name}` | {shown} | {meaning} |")
    return "\n".join(rows)


def _inherited(kind: type[Settings], name: str) -> str:
    """A field whose default alone was changed means what it means where it was described."""
    for other in (*kind.__mro__[1:], *ALGORITHMS):
        field = getattr(other, "model_fields", {}).get(name)
        if field is not None and field.description:
            return str(field.description)
    raise LookupError(f"{kind.__name__}.{name} has no description")


def _support() -> Iterator[str]:
    kinds = [kind.__name__ for kind in ALGORITHMS]
    yield "| setting | " + " | ".join(kinds) + " |"
    yield "| --- |" + " --- |" * len(kinds)
    for setting, values in SETTINGS.items():
        cells = [_verdict(kind, values) for kind in ALGORITHMS]
        yield f"| {setting} | " + " | ".join(cells) + " |"


def _verdict(kind: type[Settings], values: dict[str, Any]) -> str:
    algorithm = Distill(teacher="x") if kind is Distill else kind()
    if issubclass(kind, GivenAnswers) and "adapter" not in values:
        values = {"prompts_per_batch": 4, **values}
    recipe = Recipe(algorithm=algorithm, **values)  # type: ignore[arg-type]
    given: dict[str, Any] = {"model": "x", "dataset": {"kind": "file", "path": "x.jsonl"}}
    if "max_turns" in values and not issubclass(kind, GivenAnswers):
        given["environment"] = {"ref": "games:Game"}
    run = RunSpec(**given, recipe=recipe)
    report = LocalEngine().supports(run)
    return "refused" if report.refused else "yes"
