"""Loading and saving of weights and tokenizers: where torch and transformers are used."""

from training_gym.models.weights.adapters import add_adapter, load_adapter, save_adapter
from training_gym.models.weights.codec import load_codec
from training_gym.models.weights.loading import load_model
from training_gym.models.weights.merging import merge_adapter
from training_gym.models.weights.saving import save_model

__all__ = [
    "add_adapter",
    "load_adapter",
    "load_codec",
    "load_model",
    "merge_adapter",
    "save_adapter",
    "save_model",
]
