"""What `--json` writes: every schema's fields and their meaning, for docs and for tests.

A field may be added under the same version; what a field means, or that it is there, changes only
with a new number after the slash.
"""

from __future__ import annotations

from pydantic import BaseModel

from training_gym.records import index

_STAMP = {
    "time": "when it was recorded, ISO 8601 in UTC",
    "attempt": "which try at the run recorded it",
    "batch": "batches collected so far, or null",
    "optimizer_step": "updates of the weights so far, or null",
    "policy_version": "version of the weights that the sampler served, or null",
}
_MODEL = {
    "name": "name in the catalogue",
    "title": "its name in words",
    "hub_id": "id on the Hugging Face Hub",
    "kind": "instruct or base",
    "family": "model_type of its configuration",
    "num_parameters": "number of weights",
    "licence": "licence of the weights",
    "here": "whether it is on this machine",
    "path": "its folder, or null",
}
_RESULT = {
    "run_id": "the run",
    "status": "queued, running, completed, stopped, failed or lost",
    "reason": "why it ended, where there is something to say",
    "steps": "batches learned from",
    "evaluations": "baseline, final and difference of each by name: mean, low, high (95 %), count",
    "checkpoint": "folder of the last checkpoint, or null",
    "wall_s": "seconds over all attempts",
    "path": "the run's folder",
}

VALUES: dict[str, type[BaseModel]] = {
    "status/1": index.RunRow,
    "metrics/1": index.Series,
    "episodes/1": index.EpisodeRow,
    "episode/1": index.EpisodeDetail,
    "timeline/1": index.Timeline,
    "logs/1": index.LogLine,
    "compare/1": index.Comparison,
    "compare.diff/1": index.ConfigDifference,
    "changes/1": index.Changes,
}
"""Objects that are values of the index, with all their fields."""


def fields_of(value: type[BaseModel]) -> dict[str, str]:
    """A value's fields and what they mean, by its own words."""
    return {
        name: " ".join((field.description or name.replace("_", " ")).split())
        for name, field in value.model_fields.items()
    }


SCHEMAS: dict[str, dict[str, str]] = {
    "error/1": {
        "error": "type, message, fix, exit_code, and run_id where a run failed; ends any command",
    },
    "quickstart/1": {
        "run_id": "the run",
        "baseline_mean": "mean reward on held-out topics before training",
        "trained_mean": "the same after it",
        "difference_low": "lower end of the paired difference's 95 % interval",
        "difference_high": "upper end of it",
        "steps": "batches learned from",
        "wall_s": "seconds of evaluation, training and evaluation together",
        "checkpoint": "folder of the trained model",
        "verdict": "improved, less_varied, no_difference or worse",
        "baseline_distinctness": "share of different words in the verses before training",
        "trained_distinctness": "the same after it, over as many words",
        "seed": "the seed it ran with",
    },
    "train.plan/1": {
        "plan": "the resolved plan: definition, origins, architecture, machine, memory",
        "job": "what the platform would run",
        "files": "names of the files of the submission, each with its text",
        "findings": "what the checks found",
    },
    "runs.started/1": {
        "run_id": "the run",
        "status": _RESULT["status"],
        "path": "the run's folder",
    },
    "runs.result/1": _RESULT,
    "runs.list/1": {
        "runs": "run_id, status, created_at, name, model, tags, path and problem of each",
        "omitted": "runs left out because of --limit",
    },
    "runs.show/1": {
        **_RESULT,
        "name": "its name, or null",
        "tags": "its tags",
        "created_at": "when it was launched",
        "attempts": "number of attempts",
        "step": "batches learned from so far",
        "num_steps": "batches it is to learn from",
        "run": "the resolved definition",
        "origins": "where each value of it came from: default, recipe, user or planner",
        "checkpoints": "step, kind, path and sha256 of each",
        "parents": "runs and checkpoints it started from",
    },
    "runs.metrics/1": {**_STAMP, "values": "numbers by name; NaN and infinities as strings"},
    "runs.episodes/1": {
        **_STAMP,
        "episode": "id of the episode",
        "stream": "train, or the evaluation's name",
        "group": "id shared by the episodes of one task in one batch",
        "member": "place in the group",
        "task": "id of the task",
        "answer": "expected answer, or null",
        "status": "finished, truncated, model_failed or infrastructure_failed",
        "reason": "why, where there is something to say",
        "reward": "what it was worth, or null if it could not be judged",
        "components": "the reward's parts by name",
        "duration_s": "seconds it took",
        "messages": "role and text of each",
    },
    "runs.logs/1": {**_STAMP, "source": "stdout, stderr or log", "text": "the line"},
    "runs.page/1": {
        "shown": "records in this page",
        "omitted": "older records that match, left out because of --limit",
        "damaged": "lines of the run's files that could not be read",
        "cursor": "give it to --since to read on from here",
    },
    "runs.stop/1": {
        "run_id": "the run",
        "status": "what it was when asked",
        "asked": "whether there was anything to stop",
        "now": "whether it was asked to end at once",
    },
    **{name: fields_of(value) for name, value in VALUES.items()},
    "status.page/1": {
        "shown": "runs in this answer",
        "omitted": "runs that match, left out because of --limit",
    },
    "episodes.page/1": {
        "shown": "episodes in this page",
        "total": "episodes that match, or null where counting would mean reading them",
        "complete": "false if a search for text stopped early; --since goes on",
        "cursor": "give it to --since for the next page; empty after the last",
    },
    "logs.page/1": {
        "shown": "lines in this page",
        "complete": "false if a search stopped early; --since goes on",
        "older": "cursor for the lines before, or empty",
        "newer": "cursor for what comes after",
        "sources": "every source of the run",
    },
    "export/1": {
        "run_id": "the run",
        "format": "html, csv, parquet, chrome, atif or otlp",
        "files": "what was written",
    },
    "sync/1": {
        "run_id": "the run",
        "to": "the tracker",
        "project": "where in the tracker",
        "records": "metric records that were handed on this time",
    },
    "dashboard/1": {
        "url": "address to open, with its key; may annotate unless --read-only",
        "viewer_url": "address for others, which only reads",
    },
    "collect/1": {
        "url": "address, for TRAINING_GYM_COLLECTOR",
        "key": "registers runs, for TRAINING_GYM_COLLECTOR_TOKEN",
        "read_key": "bearer token that only reads /metrics",
    },
    "import/1": {"run_id": "the new run", "kind": "tensorboard or wandb", "path": "its folder"},
    "runs.note/1": {"run_id": "the run", "notes": "id, time, by and text of each"},
    "runs.tag/1": {"run_id": "the run", "tags": "its tags now"},
    "runs.gc/1": {
        "removals": "path, bytes and why of everything that goes",
        "bytes": "of all of it",
        "deleted": "false: it was only said what would go",
    },
    "schema.list/1": {"schemas": "names of all schemas"},
    "runs.pause/1": {"run_id": "the run", "status": "what it was when asked"},
    "runs.ack/1": {
        "run_id": "the run",
        "alerts": "ids of the alerts",
        "by": "who has seen them",
        "note": "what was said",
        "withdrawn": "whether the acknowledgement was taken back",
    },
    "alerts/1": {
        "run_id": "the run",
        "verdict": "level (healthy, too_early, degraded, critical), sentence, since_step, rule",
        "alerts": "open first, worst first: id, rule, severity, state, environment, first_step, "
        "last_step, opened_at, updated_at, worsened_at, message, value, threshold, evidence "
        "(episode ids), explanations, next, source, acknowledged_by, note, details of each",
        "omitted": "alerts left out because of --limit",
        "cursor": "give it to --since to see what changes from here",
    },
    "explain/1": {
        "run_id": "the run",
        "steps_before": "first and last of the steps compared with",
        "steps_after": "first and last of the steps that are compared",
        "difference": "of the mean rewards",
        "standard_error": "of that difference",
        "moved": "whether it is more than two standard errors",
        "summary": "one sentence",
        "parts": "kind (component, length, outcome, signal, task, evaluation, cause), name, "
        "effect on the mean reward, before, after, text, episodes of each",
        "verdict": "as in alerts/1",
        "alerts": "ids of the alerts that are not resolved",
        "judged": "episode, reward, verdict (honest, exploit, unclear) and why; without --judge"
        " empty",
    },
    "models.list/1": {"models": ", ".join(_MODEL) + " of each"},
    "models.show/1": {
        **_MODEL,
        "aliases": "other names it answers to",
        "revision": "commit on the Hub, or null for the newest",
        "terms": "what must be shown to whoever fetches it, or null",
        "notes": "what else is worth knowing",
        "packages": "Python packages it can come from",
        "download_mb": "size of those, or null",
    },
    "models.pull/1": {"name": "the model", "path": "the folder it lies in"},
    "models.merge/1": {"adapter": "the adapter", "path": "folder of the merged model"},
    "models.export/1": {"adapter": "the adapter", "path": "folder of the copy"},
    "env.run/1": {
        "id": "the episode, unique within the command",
        "task": "id of its task",
        "answer": "what the task expects",
        "status": "finished, truncated, model_failed or infrastructure_failed",
        "reason": "why it ended, where there is something to say",
        "score": "what it was worth, or null: not judged",
        "components": "the score's parts by name",
        "messages": "the conversation: role, content, reasoning, tool_calls and the like, if set",
        "conversations": "those of other agents, by name",
        "artifacts": "what the environment kept: state, submission, log",
        "tokens": "sampled tokens; 0 where a server played",
        "forks": "requests whose history was not the recorded one",
        "duration_s": "seconds it took",
    },
    "sandbox.run/1": {
        "exit_code": "of the command; minus the signal's number if one ended it",
        "failure": "exec_timeout, output_limit or out_of_memory, or null",
        "tier": "tier of isolation it ran under",
        "stdout": "kept output, undecodable bytes replaced",
        "stderr": "the same of stderr",
        "stdout_bytes": "bytes written in all",
        "stderr_bytes": "the same of stderr",
        "duration_s": "seconds it took",
        "cpu_s": "processor seconds, or null",
        "peak_memory_mb": "MiB of its largest process, or null",
        "leftovers": "processes it left behind, ended",
        "clean": "false if something could not be ended",
    },
    "sandbox.doctor/1": {
        "works": "whether any tier does",
        "tiers": "tier, provider, works, guarantees, limits, reason and fix of each",
    },
    "init/1": {
        "template": "which one",
        "files": "what was written; the definition first",
        "next": "commands to go on with",
    },
    "init.list/1": {"templates": "what each trains, by name"},
    "harbor.task/1": {
        "name": "the task",
        "folder": "where it lies",
        "digest": "SHA-256 of its content, as registries pin it",
        "finding": "sound, solution_fails, nothing_scores, no_solution or not_run",
        "reason": "what was seen",
        "fix": "what to do, where there is something to do",
        "solution": "the trial of the reference solution: rewards, steps, stopped_at, notes",
        "nothing": "the same of doing nothing",
        "tier": "tier of isolation it ran under",
        "duration_s": "seconds it took",
        "notes": "where it ran differently than with Harbor",
    },
    "harbor.verify/1": {
        "tasks": "how many were verified",
        "sound": "how many of them are sound",
        "findings": "how many of each finding",
    },
    "demo-run/1": {
        "run_id": "the run that was written",
        "kind": "what it shows",
        "path": "the run's folder",
    },
    "doctor/1": {
        "healthy": "false if something keeps every run from working",
        "findings": "code, name, value, state (good, missing, broken) and fix of each",
    },
    "sandbox.size/1": {
        "demand": "what was asked: episodes, times in seconds, shares, limits, blocking",
        "size": "acquires_per_s, lead_s, outstanding, creates_needed_per_s, sustainable, spares, "
        "live, idle and predicted_blocking; null where no buffer suffices",
        "burst_spares": "spares for a burst, or null",
        "graders": "stateless sandboxes for graders, or null",
        "step": "rows of the synchronous step's table: concurrent, worst_s, typical_s, deaths_s, "
        "single_use_s",
    },
}
