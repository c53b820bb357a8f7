"""The value head of PPO: what a state is worth, read from the policy's own hidden states."""

from __future__ import annotations

import torch

from training_gym.engines.local.network import Network
from training_gym.engines.local.optimizer import Optimizer
from training_gym.spec.algorithms import PPO
from training_gym.spec.recipe import Recipe


class ValueHead(torch.nn.Module):
    """One linear layer on the last hidden state; starts at zero, so every state is worth 0."""

    def __init__(self, hidden_size: int, device: torch.device) -> None:
        """A head for hidden states of `hidden_size`, in float32."""
        super().__init__()
        self.linear = torch.nn.Linear(hidden_size, 1, device=device, dtype=torch.float32)
        torch.nn.init.zeros_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Values (M,) of hidden states (M, hidden)."""
        values: torch.Tensor = self.linear(hidden.float()).squeeze(-1)
        return values


def with_scaled_gradient(hidden: torch.Tensor, scale: float) -> torch.Tensor:
    """The same numbers; their gradient arrives multiplied by `scale`."""
    held = hidden.detach()
    return held if scale == 0 else held + scale * (hidden - held)


def with_optimizer(
    network: Network, recipe: Recipe, total_steps: int
) -> tuple[ValueHead | None, Optimizer | None]:
    """A value head for the network and what trains it, where the algorithm has one (PPO)."""
    if not isinstance(recipe.algorithm, PPO):
        return None, None
    hidden_size: int = network.model.config.get_text_config().hidden_size
    head = ValueHead(hidden_size, network.device)
    settings = recipe.optimizer.changed(
        learning_rate=recipe.algorithm.value_learning_rate, weight_decay=0.0
    )
    return head, Optimizer(list(head.named_parameters()), settings, total_steps)
