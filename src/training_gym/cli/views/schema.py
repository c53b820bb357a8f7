"""`training-gym schema`."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def schema(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Such as status/1; without one, list all."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A schema is JSON anyway; the list becomes so too.")
    ] = False,
) -> None:
    """Write the JSON Schema of what a command's --json writes."""
    import json

    from training_gym.cli import output
    from training_gym.cli.failures import UsageError
    from training_gym.cli.schemas import SCHEMAS
    from training_gym.spec.errors import did_you_mean

    if name is None:
        if as_json:
            output.emit("schema.list/1", schemas=sorted(SCHEMAS))
            return
        for known in sorted(SCHEMAS):
            output.data(known)
        return
    if name not in SCHEMAS:
        raise UsageError(f"no schema is called {name!r}", fix=did_you_mean(name, SCHEMAS))
    output.data(json.dumps(json_schema(name), indent=2))


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of one object that `--json` writes."""
    from training_gym.cli.schema_values import VALUES
    from training_gym.cli.schemas import SCHEMAS

    value = VALUES.get(name)
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if value is not None:
        schema = value.model_json_schema(mode="serialization")
    for field, meaning in SCHEMAS[name].items():
        schema["properties"].setdefault(field, {"description": meaning})
    schema["properties"]["schema"] = {"const": name}
    schema["required"] = ["schema", *SCHEMAS[name]]
    schema["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": name}
