"""Rows of datasets on the Hugging Face Hub or in a local folder, read through `datasets`.

`HF_HUB_OFFLINE=1` is honoured by the library: then only what lies in its cache is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from training_gym.data.rows import Row
from training_gym.spec.datasets import HuggingFaceDataset
from training_gym.spec.errors import DataError, did_you_mean


def open_hub(dataset: HuggingFaceDataset, root: Path) -> Any:
    """The split as a `datasets.Dataset`; raises `DataError` with what is there instead."""
    try:
        import datasets
    except ImportError:
        raise DataError(
            f"reading {dataset.path!r} needs the datasets library, which is not installed",
            fix="pip install 'training-gym[data]'",
        ) from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    local = root / Path(dataset.path).expanduser()
    try:
        if local.is_dir():
            return _open_folder(datasets, dataset, local)
        return datasets.load_dataset(
            dataset.path, name=dataset.config, split=dataset.split, revision=dataset.revision
        )
    except DataError:
        raise
    # The boundary to `datasets`, whose errors have no common base.
    except Exception as error:
        raise _explain(dataset, error) from error


def hub_rows(dataset: HuggingFaceDataset, rows: Any) -> Generator[Row, None, None]:
    """The rows as they are stored: images and sound stay undecoded bytes."""
    name = f"{dataset.path} ({dataset.split})"
    number = 0
    for table in rows.with_format("arrow").iter(batch_size=1024):
        for columns in table.to_pylist():
            number += 1
            yield Row(columns, f"{name}, row {number}")


def _open_folder(datasets: Any, dataset: HuggingFaceDataset, folder: Path) -> Any:
    """A folder of data files, or what `save_to_disk` wrote."""
    if (folder / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(str(folder))
        if dataset.split not in splits:
            raise DataError(
                f"{dataset.path} has no split {dataset.split!r}",
                fix=did_you_mean(dataset.split, splits),
            )
        return splits[dataset.split]
    if (folder / "state.json").is_file():
        return datasets.load_from_disk(str(folder))
    return datasets.load_dataset(str(folder), name=dataset.config, split=dataset.split)


def _explain(dataset: HuggingFaceDataset, error: Exception) -> DataError:
    text = str(error)
    known = re.search(r"(?:one of|Available:|available configs:) ?\[(.*?)\]", text)
    names = re.findall(r"'([^']*)'", known[1]) if known else []
    if "nknown split" in text:
        return DataError(
            f"{dataset.path} has no split {dataset.split!r}",
            fix=did_you_mean(dataset.split.partition("[")[0], names),
        )
    if names and "onfig" in text:
        return DataError(
            f"{dataset.path} has no config {dataset.config!r}"
            if dataset.config
            else f"{dataset.path} has several configs",
            fix=did_you_mean(dataset.config or "", names),
        )
    if "offline" in text.lower():
        return DataError(
            f"{dataset.path!r} is not in the local cache, and HF_HUB_OFFLINE forbids a download",
            fix="unset HF_HUB_OFFLINE, or give a local folder or FileDataset",
        )
    if isinstance(error, ConnectionError):
        return DataError(
            f"the Hugging Face Hub cannot be reached and {dataset.path!r} is not in its cache",
            fix="check the network, or give a local folder or FileDataset",
        )
    if type(error).__name__ in ("DatasetNotFoundError", "EmptyDatasetError"):
        return DataError(
            f"there is no dataset {dataset.path!r}: {_first_line(text)}",
            fix="check the id (owner/name); a private or gated one needs HF_TOKEN",
        )
    return DataError(
        f"{dataset.path!r} cannot be loaded: {type(error).__name__}: {_first_line(text)}",
        fix="check path, config, split and revision of the HuggingFaceDataset",
    )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
