"""The metrics of a demo run's batches, from its episodes where there are any."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from random import Random

from training_gym.records.demo.course import Moment
from training_gym.records.demo.plays import Play
from training_gym.records.demo.shape import DemoShape


def batch_metrics(
    shape: DemoShape, now: Moment, plays: Sequence[Play], seconds: dict[str, float], random: Random
) -> dict[str, float]:
    """What an engine would say of the batch; as many metrics as the shape asks for."""
    metrics = _of_plays(plays) if plays else _imagined(shape, now, random)
    metrics |= {
        "loss": random.gauss(0, 1e-3),
        "entropy": now.entropy,
        "kl_to_sampler": now.kl,
        "mismatch_mean": now.mismatch,
        "mismatch_max": now.mismatch * 9,
        "ratio_max": math.exp(min(5.0, now.mismatch * 9)),
        "effective_sample_share": max(0.05, 1 - 4 * now.mismatch),
        "clipped_fraction": now.clipped,
        "grad_norm": now.grad_norm,
        "learning_rate": 3e-3 if shape.kind == "learning_rate" else 1e-5,
        "skipped": 0.0,
        **seconds,
        "peak_memory_gib": 5.8 + 0.01 * random.random(),
    }
    metrics["sampled_tokens_per_second"] = metrics["sampled_tokens"] / seconds["rollout_seconds"]
    for layer in range(max(0, shape.metrics - len(metrics))):
        norm = now.grad_norm / (1 + layer % 24)
        metrics[f"layers/{layer:04d}/grad_norm"] = norm * math.exp(random.gauss(0, 0.1))
    return dict(list(metrics.items())[: shape.metrics])


def _of_plays(plays: Sequence[Play]) -> dict[str, float]:
    episodes = [play.episode for play in plays]
    rewards = [e.score.value for e in episodes if e.score is not None]
    lengths = [e.num_tokens for e in episodes]
    by_group: dict[str, list[float]] = {}
    for e in episodes:
        if e.score is not None:
            by_group.setdefault(e.group, []).append(e.score.value)
    equal = sum(max(values) == min(values) for values in by_group.values())
    count = len(episodes)
    metrics = {
        "reward_mean": statistics.fmean(rewards) if rewards else 0.0,
        "reward_std": statistics.pstdev(rewards) if rewards else 0.0,
        "reward_min": min(rewards, default=0.0),
        "reward_max": max(rewards, default=0.0),
        "episodes": float(count),
        "episodes_dropped": float(count - len(rewards)),
        "groups_equal_share": equal / max(1, len(by_group)),
        "response_tokens_mean": statistics.fmean(lengths),
        "response_tokens_max": float(max(lengths)),
        "truncated_share": sum(e.outcome.status == "truncated" for e in episodes) / count,
        "infrastructure_failed_share": 1 - len(rewards) / count,
        "sampled_tokens": float(sum(lengths)),
    }
    names = sorted({name for e in episodes if e.score for name in e.score.components})
    for name in names:
        values = [e.score.components.get(name, 0.0) for e in episodes if e.score]
        metrics[f"reward/{name}"] = statistics.fmean(values)
    return metrics


def _imagined(shape: DemoShape, now: Moment, random: Random) -> dict[str, float]:
    """The same without episodes."""
    reward = now.skill + 0.1 + now.padding * 0.6 + random.gauss(0, 0.02)
    tokens = shape.answer_words * now.length * 1.2
    return {
        "reward_mean": reward,
        "reward_std": 0.4 * (1 - now.agreement),
        "response_tokens_mean": tokens,
        "truncated_share": now.truncated,
        "groups_equal_share": now.agreement,
        "infrastructure_failed_share": now.failed,
        "sampled_tokens": tokens * 32,
    }
