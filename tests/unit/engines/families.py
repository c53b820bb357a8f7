"""Every family as a tiny model whose random weights make answers depend on all they should."""

import torch

from training_gym.models.weights import load_model
from training_gym.models.weights.tiny import FAMILIES

__all__ = ["FAMILIES", "own_logprobs", "sharp_model"]


def sharp_model(folder, **options):
    """The model of a folder in float32, its weights far from their nearly uniform start."""
    model = load_model(folder, dtype="float32", device="cpu", **options).eval()
    generator = torch.Generator().manual_seed(5)
    # Gemma 4 does not divide its scores by the width of a head: with weights as large as the
    # others' its own forward is further than 1e-5 from that in float64.
    factor = 1.5 if model.config.model_type == "gemma4_text" else 2.5
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                continue
            if parameter.ndim >= 2:
                parameter.mul_(factor)
            else:  # norms, biases, sinks, decays: away from ones and zeros
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


@torch.no_grad()
def own_logprobs(model, ids):
    """By the model's own eager forward, one sequence alone: (T, vocabulary)."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]
    model.set_attn_implementation(before)
    return logits.float().log_softmax(-1)
