"""A GGUF file becomes a safetensors folder in Hugging Face layout, once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.models.gguf_header import GgufHeader, read_header
from training_gym.models.weights.gguf_direct import FAMILIES, convert_directly
from training_gym.models.weights.gguf_tokenizer import special_tokens, tokenizer_from
from training_gym.models.weights.loading import check_complete
from training_gym.models.weights.quiet import quiet
from training_gym.spec.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel


def convert_gguf(file: Path, directory: Path) -> None:
    """Write the model in `file` to `directory` as float32 safetensors with its tokenizer.

    Raises:
        ModelError: the file is damaged, or its architecture or tokenizer is not known.
    """
    header = read_header(file)
    _check_whole(header, file)
    tokenizer = tokenizer_from(header)
    directory.mkdir(parents=True, exist_ok=True)
    if header.architecture in FAMILIES:
        convert_directly(file, header, directory)
    else:
        convert_by_transformers(file, header, directory)
    _save_tokenizer(tokenizer, header, directory)


def convert_by_transformers(file: Path, header: GgufHeader, directory: Path) -> None:
    """Write configuration and weights the slow way, for any family transformers knows."""
    model = _dequantised(file, header)
    _check_finite(model, file)
    with quiet():
        model.save_pretrained(directory)


def _dequantised(file: Path, header: GgufHeader) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    try:
        with quiet(), _no_progress_bar():
            model, report = AutoModelForCausalLM.from_pretrained(
                str(file.parent),
                gguf_file=file.name,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
                local_files_only=True,
                output_loading_info=True,
            )
    except (ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        # What the loader raises for files it cannot use; anything else is a bug and shows one.
        raise ModelError(
            f"{file} ({header.architecture}) cannot be converted: {_first_line(error)}",
            fix="use the model's safetensors folder, or a newer transformers",
        ) from error
    check_complete(file, report)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model


def _check_whole(header: GgufHeader, file: Path) -> None:
    """Refuse what the conversion would lose without a word."""
    if int(header.get("split.count", 0)) > 1:
        raise ModelError(
            f"{file} is one of {header.get('split.count')} pieces of a model",
            fix="join the pieces with llama-gguf-split --merge",
        )
    scaled = header.get("{arch}.rope.scaling.type", "none") != "none"
    if scaled or any(tensor.name.startswith("rope_freqs") for tensor in header.tensors):
        raise ModelError(
            f"{file} scales its rotary positions, which its conversion would lose",
            fix="use the model's safetensors folder",
        )


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    # This loader draws with tqdm itself, past the switch that transformers offers.
    import transformers.modeling_gguf_pytorch_utils as loader

    original = loader.tqdm
    loader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        loader.tqdm = original


def _check_finite(model: Any, file: Path) -> None:
    import torch

    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise ModelError(
                f"{file} is damaged: {name} holds values that are no numbers",
                fix="download the file again",
            )


def _save_tokenizer(tokenizer: Tokenizer, header: GgufHeader, directory: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=header.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        model_max_length=int(header.get("{arch}.context_length", 1 << 20)),
        **special_tokens(header),
    )
    with quiet():
        fast.save_pretrained(directory)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
