"""`training-gym models merge` and `models export`: what becomes of an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training_gym.cli.options import AsJson

AdapterFolder = Annotated[
    Path, typer.Argument(metavar="ADAPTER", help="Adapter's folder, such as a run's checkpoint.")
]
NewFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder to write.")]


def merge(
    adapter: AdapterFolder,
    folder: NewFolder,
    base: Annotated[
        str | None, typer.Option(help="Base model; without it, the one the adapter names.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an adapter to its base model and write the result as a model of its own."""
    from training_gym.cli import output
    from training_gym.models.adapter_folder import require_adapter, require_new
    from training_gym.models.catalogue import resolve

    _require_whole(require_adapter(adapter))
    place = None if base is None else resolve(base, say=output.say)
    require_new(folder)
    from training_gym.models.weights import merge_adapter

    merge_adapter(adapter, folder, base=place)
    if as_json:
        output.emit("models.merge/1", adapter=str(adapter), path=str(folder.resolve()))
    else:
        output.data(str(folder.resolve()))


def export(
    adapter: AdapterFolder,
    folder: NewFolder,
    base: Annotated[
        str | None, typer.Option(help="What the copy calls its base model: a Hub id, a folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy an adapter to a folder of its own that peft, vLLM and others load."""
    from training_gym.cli import output
    from training_gym.models.adapter_folder import export_adapter, require_adapter

    _require_whole(require_adapter(adapter))
    export_adapter(adapter, folder, base=base)
    if as_json:
        output.emit("models.export/1", adapter=str(adapter), path=str(folder.resolve()))
    else:
        output.data(str(folder.resolve()))


def _require_whole(folder: Path) -> None:
    """Refuse a checkpoint whose files are not what was written."""
    from training_gym.records.checkpoints import require_whole

    if (folder / "checkpoint.json").is_file():
        require_whole(folder)
