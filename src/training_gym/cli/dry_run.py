"""What would run, without running it: the plan, its memory, the job and the platform's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training_gym.cli import output

if TYPE_CHECKING:
    from training_gym.launch import Prepared, TrainConfig
    from training_gym.spec.plan import Plan


def show_plan(config: TrainConfig, *, as_json: bool) -> None:
    """Check and plan a definition, and show what `train` would submit."""
    from training_gym.launch import prepare
    from training_gym.platforms.registry import find

    prepared = prepare(config, say=output.say)
    files = find(prepared.plan.run.compute.kind).render(prepared.job)
    if as_json:
        output.emit(
            "train.plan/1",
            plan=prepared.plan.model_dump(mode="json"),
            job=prepared.job.model_dump(mode="json"),
            files=dict(files),
            findings=[finding.model_dump(mode="json") for finding in prepared.findings],
        )
        return
    for name, value in _lines(prepared):
        output.data(f"{name:<14}{value}")
    for path, text in files.items():
        output.data(f"\n── {path}\n{text.rstrip()}")
    output.say("nothing was started: leave --dry-run out to train")


def _lines(prepared: Prepared) -> list[tuple[str, str]]:
    plan, recipe = prepared.plan, prepared.plan.run.recipe
    batch = f"{recipe.prompts_per_batch} tasks × {recipe.group_size} episodes"
    lines = [
        ("model", f"{plan.run.model} ({plan.architecture.num_parameters / 1e6:.3g} M parameters)"),
        ("algorithm", f"{recipe.algorithm.kind}, {'adapter' if recipe.adapter else 'all weights'}"),
        ("batches", f"{recipe.num_steps} of {batch}"),
        ("lengths", f"up to {plan.max_sequence_tokens} tokens, prompt and answer together"),
        ("evaluations", ", ".join(e.name for e in plan.run.evaluations) or "none"),
        ("sampling", f"{plan.slots} sequences at once"),
        ("training", f"micro-batches of {plan.token_budget} tokens"),
        ("memory", _memory(plan)),
        ("command", " ".join(prepared.job.groups[0].command)),
    ]
    lines += [("note", note) for note in plan.notes]
    lines += [("set", f"{path} = {value}") for path, value in chosen(plan)]
    return lines + [(f.severity, f"{f.message} [{f.code}]") for f in prepared.findings]


def _memory(plan: Plan) -> str:
    memory = plan.memory
    return f"{memory.total_gib:.1f} of {memory.available_gib:.1f} GiB, most of it {memory.binding}"


def chosen(plan: Plan) -> list[tuple[str, object]]:
    """What the user set, by path; texts and rows that would fill the screen are cut."""
    run = plan.run.model_dump(mode="json")
    paths = [path for path, origin in plan.origins.items() if origin == "user"]
    return [(path, output.value_at(run, path)) for path in paths]
