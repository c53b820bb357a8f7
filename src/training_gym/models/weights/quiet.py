"""Keep transformers and its loaders from talking over our own progress."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars, log lines or warnings of transformers inside; the former state after."""
    import tqdm.auto
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), _no_tqdm():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextlib.contextmanager
def _no_tqdm() -> Iterator[None]:
    # The GGUF loader draws with bare tqdm, which only its environment variable silences, and
    # that is read when the class is made; so its instances are told one by one.
    import transformers.modeling_gguf_pytorch_utils as loader

    original = loader.tqdm
    loader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        loader.tqdm = original
