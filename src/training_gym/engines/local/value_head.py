"""The value head of PPO: what a state is worth, read from the policy's own hidden states."""

from __future__ import annotations

import torch


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
