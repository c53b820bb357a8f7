"""Every family as a tiny model whose random weights make answers depend on all they should."""

import torch

from training_gym.models.weights import load_model
from training_gym.models.weights.tiny import FAMILIES

__all__ = ["FAMILIES", "greedy", "own_logprobs", "sharp_model"]


def sharp_model(folder, **options):
    """The model of a folder in float32, its weights far from their nearly uniform start."""
    model = load_model(folder, dtype="float32", device="cpu", **options).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                continue
            if parameter.ndim >= 2:
                parameter.mul_(4.0)
            else:  # norms, biases, sinks, decays: away from ones and zeros
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@torch.no_grad()
def own_logprobs(model, ids):
    """By the model's own eager forward, one sequence alone: (T, vocabulary)."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]
    model.set_attn_implementation(before)
    return logits.float().log_softmax(-1)


def greedy(model, prompt, count):
    """Greedy ids of the model's own forward, and by how much the best beats the second."""
    ids, margins = list(prompt), []
    for _ in range(count):
        best = own_logprobs(model, ids)[-1].topk(2)
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[len(prompt) :], margins
