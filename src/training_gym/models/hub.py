"""Snapshots of models on the Hugging Face Hub, where it can be reached."""

from __future__ import annotations

from pathlib import Path

from training_gym.spec.errors import ModelError

_WANTED = (
    "*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.txt", "LICENSE*", "NOTICE*",
)  # fmt: skip
_UNWANTED = ("onnx/*", "original/*", "runs/*", "*.onnx_data", "*/*")
_PATIENCE_S = 5
"""Seconds after which a Hub that does not answer counts as out of reach."""


class HubUnreachable(ModelError):
    """The Hub cannot be asked: no network, no answer, or told to stay offline."""


def snapshot(hub_id: str, revision: str | None = None) -> Path:
    """The folder of a model's files, from the local cache where they are complete.

    Raises:
        HubUnreachable: the model is not cached and the Hub cannot be asked.
        ModelError: the Hub has no such model, or does not give it to this user.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError as error:
        raise HubUnreachable(
            f"fetching {hub_id} needs huggingface_hub", fix="pip install 'training-gym[local]'"
        ) from error
    _ask(hub_id, revision)
    try:
        folder = hub.snapshot_download(
            hub_id,
            revision=revision,
            allow_patterns=list(_WANTED),
            ignore_patterns=list(_UNWANTED),
            etag_timeout=_PATIENCE_S,
        )
    except errors.LocalEntryNotFoundError as error:
        raise _unreachable(hub_id) from error
    return Path(folder)


def _unreachable(hub_id: str) -> HubUnreachable:
    return HubUnreachable(
        f"{hub_id} is not on this machine and the Hugging Face Hub cannot be reached",
        fix="check the network and HF_HUB_OFFLINE, or give a local folder or GGUF file",
    )


def _ask(hub_id: str, revision: str | None) -> None:
    """Find out within seconds whether the Hub answers; a cached model needs no answer."""
    raise _unreachable(hub_id)
