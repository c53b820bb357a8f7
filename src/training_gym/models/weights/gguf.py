"""A GGUF file becomes a safetensors folder in Hugging Face layout, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_gym.models.gguf_header import GgufHeader, read_header
from training_gym.models.weights.gguf_tokenizer import special_tokens, tokenizer_from
from training_gym.models.weights.quiet import quiet
from training_gym.spec.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def convert_gguf(file: Path, directory: Path) -> None:
    """Write the model in `file` to `directory` as float32 safetensors with its tokenizer.

    Raises:
        ModelError: the file is damaged, or its architecture or tokenizer is not known.
    """
    header = read_header(file)
    tokenizer_from(header)  # Refuse before the minute that dequantising takes.
    model = _dequantised(file, header)
    _check_finite(model, file)
    directory.mkdir(parents=True, exist_ok=True)
    with quiet():
        model.save_pretrained(directory)
    _save_tokenizer(header, directory)


def _dequantised(file: Path, header: GgufHeader) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    try:
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(
                str(file.parent),
                gguf_file=file.name,
                dtype=torch.float32,
                quantization_config=GgufConfig(dequantize=True),
                local_files_only=True,
            )
    except (ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        # What the loader raises for files it cannot use; anything else is a bug and shows one.
        raise ModelError(
            f"{file} ({header.architecture}) cannot be converted: {_first_line(error)}",
            fix="use the model's safetensors folder, or a newer transformers",
        ) from error
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model  # type: ignore[no-any-return]


def _check_finite(model: Any, file: Path) -> None:
    import torch

    for name, tensor in model.state_dict().items():
        if not torch.isfinite(tensor).all():
            raise ModelError(
                f"{file} is damaged: {name} holds values that are no numbers",
                fix="download the file again",
            )


def _save_tokenizer(header: GgufHeader, directory: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_from(header),
        chat_template=header.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        model_max_length=int(header.get("{arch}.context_length", 1 << 20)),
        **special_tokens(header),
    )
    with quiet():
        tokenizer.save_pretrained(directory)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
