"""`training-gym runs …`: what runs there are, what they recorded, stopping and resuming them."""

from __future__ import annotations

from training_gym.cli.lazy import Table, group

VERBS: Table = {
    "list": ("runs.list:list_runs", "List runs, newest first."),
    "show": ("runs.show:show", "Show one run: definition, state, checkpoints."),
    "metrics": ("runs.metrics:metrics", "Show the numbers a run recorded, newest last."),
    "episodes": ("runs.episodes:episodes", "Show episodes: prompts, answers, rewards."),
    "logs": ("runs.logs:logs", "Show what a run's processes wrote."),
    "wait": (
        "runs.wait:wait",
        "Wait until a run has ended, or until a condition on its metrics and status holds.",
    ),
    "stop": ("runs.stop:stop", "Ask a run to save a checkpoint and end."),
    "pause": (
        "runs.pause:pause",
        "Ask a run to hold after its step, keeping what it has in memory.",
    ),
    "resume": (
        "runs.resume:resume",
        "Go on from the newest checkpoint; a paused run simply goes on.",
    ),
    "fork": ("runs.fork:fork", "Start a new run that goes on from any checkpoint of another."),
    "ack": ("runs.ack:ack", "Acknowledge alerts: they stay listed, but as seen."),
    "note": ("runs.annotate:note", "Write a note on a run, or show its notes."),
    "tag": ("runs.annotate:tag", "Tag a run, or show its tags."),
    "gc": ("runs.gc:gc", "Say what of old runs could be deleted, and with --delete, delete it."),
}

app = group(VERBS, help="Look at runs, stop them, go on with them.")
