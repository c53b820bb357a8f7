"""AdamW with schedule and clipping, over torch's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from training_gym.engines.local.parallel.tensors import like, whole
from training_gym.spec.recipe import AdamW


def learning_rate(settings: AdamW, step: int, total_steps: int) -> float:
    """The rate of update number `step` (from 0) of `total_steps`.

    Linear warm-up, then constant, linear or cosine (Loshchilov & Hutter 2016, arXiv:1608.03983)
    down to `final_fraction` at the last step.
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.learning_rate
    span = max(total_steps - settings.warmup_steps - 1, 1)
    progress = min((step - settings.warmup_steps) / span, 1.0)
    left = 1 - progress if settings.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    floor = settings.final_fraction
    return settings.learning_rate * (floor + (1 - floor) * left)


class Optimizer:
    """Owns the moments; the parameters stay the network's."""

    def __init__(
        self,
        parameters: Sequence[tuple[str, torch.nn.Parameter]],
        settings: AdamW,
        total_steps: int,
    ) -> None:
        """Train `parameters` for `total_steps` updates; matrices decay, vectors do not."""
        self.settings = settings
        self.total_steps = total_steps
        self.step_number = 0
        self._parameters = [parameter for _, parameter in parameters]
        groups = [
            {
                "params": [p for p in self._parameters if p.ndim >= 2],
                "weight_decay": settings.weight_decay,
            },
            {"params": [p for p in self._parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            fused=self._parameters[0].device.type in ("cpu", "cuda"),
        )

    def update(self) -> dict[str, float]:
        """Clip, step and clear the gradients; returns `grad_norm` and `learning_rate`.

        A gradient that is not finite changes nothing and is reported as `skipped`.
        """
        rate = learning_rate(self.settings, self.step_number, self.total_steps)
        norm = whole(torch.nn.utils.clip_grad_norm_(self._parameters, self.settings.max_grad_norm))
        finite = bool(torch.isfinite(norm))
        if finite:
            for group in self._adam.param_groups:
                group["lr"] = rate
            self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self.step_number += 1
        return {
            "grad_norm": float(norm),
            "learning_rate": rate,
            "skipped": 0.0 if finite else 1.0,
        }

    def clear(self) -> None:
        """Forget the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """All that an exact resume needs, without shards."""
        adam = self._adam.state_dict()
        adam["state"] = {
            number: {name: whole(value) for name, value in moments.items()}
            for number, moments in adam["state"].items()
        }
        return {"step_number": self.step_number, "adam": adam}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self.step_number = state["step_number"]
        ordered = [p for group in self._adam.param_groups for p in group["params"]]
        moments = {
            number: {name: like(value, ordered[number]) for name, value in found.items()}
            for number, found in state["adam"]["state"].items()
        }
        self._adam.load_state_dict({**state["adam"], "state": moments})
