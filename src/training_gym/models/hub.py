"""Snapshots of models on the Hugging Face Hub, from its local cache where it cannot be asked."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from training_gym.models.store import storage_errors
from training_gym.spec.errors import ModelError

_WANTED = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model", "LICENSE*", "NOTICE*"]
_UNWANTED = ["*/*"]
"""Folders hold other formats of the same weights."""
_PATIENCE_S = 5.0
"""Seconds after which a Hub that does not answer counts as out of reach."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubUnreachable(ModelError):
    """The Hub cannot be asked: no network, no answer, or told to stay offline."""


def looks_like_hub_id(name: str) -> bool:
    """Whether `name` is written as `owner/model`."""
    return _HUB_ID.fullmatch(name) is not None


def snapshot(hub_id: str, revision: str | None = None) -> Path:
    """The folder of a model's files; downloads what the cache lacks.

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
    cached = not _hub_answers(hub_id, revision)
    try:
        with storage_errors(Path(hub.constants.HF_HUB_CACHE)):
            return Path(_download(hub_id, revision, local_files_only=cached))
    except errors.LocalEntryNotFoundError as error:
        raise HubUnreachable(
            f"{hub_id} is not on this machine and the Hugging Face Hub cannot be reached",
            fix="check the network and HF_HUB_OFFLINE, or give a local folder or a GGUF file",
        ) from error


def _download(hub_id: str, revision: str | None, **options: Any) -> str:
    import huggingface_hub as hub
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    folder: str = hub.snapshot_download(
        hub_id,
        revision=revision,
        allow_patterns=_WANTED,
        ignore_patterns=_UNWANTED,
        etag_timeout=_PATIENCE_S,
        **options,
    )
    return folder


def _hub_answers(hub_id: str, revision: str | None) -> bool:
    """Whether the Hub gives this model, found out within seconds; raises where it refuses."""
    import huggingface_hub as hub
    from huggingface_hub import errors

    try:
        hub.HfApi().model_info(hub_id, revision=revision, timeout=_PATIENCE_S)
    except errors.HFValidationError as error:
        raise ModelError(f"{hub_id!r} is no Hub id", fix="write it as owner/model") from error
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{hub_id} is gated: its owner asks you to accept terms first",
            fix=f"accept them on the page of {hub_id}, then `hf auth login` or set HF_TOKEN",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(
            f"{hub_id} has no revision {revision!r}", fix="check the revision on its page"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"the Hub has no model {hub_id!r}, or none that you may see",
            fix="check the spelling; for a private model `hf auth login` or set HF_TOKEN",
        ) from error
    except (OSError, getattr(errors, "HTTPError", OSError)):
        # Boundary with the network: no route, no name, no answer, a proxy's refusal, offline mode.
        # The second is the base error of whichever HTTP client this huggingface_hub uses.
        return False
    return True
