import enum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from training_gym.environments.tools.signature import arguments_model, spec_of
from training_gym.spec.errors import SpecError


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


class Place(BaseModel):
    name: str


def spec(function):
    return spec_of(function, arguments_model(function))


def test_signature_and_docstring_become_a_schema():
    def measure(
        place: str, title: int = 3, unit: Literal["m", "ft"] = "m", *, deep: bool = False
    ) -> float:
        """Measure a place.

        Twice, to be sure.

        Args:
            place: Where to
                measure.
            title (int): How often.

        Returns:
            The height.
        """

    found = spec(measure)
    assert (found.name, found.description) == ("measure", "Measure a place. Twice, to be sure.")
    assert found.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["place"],
        "properties": {
            "place": {"type": "string", "description": "Where to measure."},
            "title": {"type": "integer", "default": 3, "description": "How often."},
            "unit": {"type": "string", "enum": ["m", "ft"], "default": "m"},
            "deep": {"type": "boolean", "default": False},
        },
    }


def test_what_the_environment_supplies_is_no_argument():
    def look(ctx, state, at: str):
        """Look."""

    assert list(spec(look).parameters["properties"]) == ["at"]


def test_models_enums_and_bounds_are_described():
    def go(place: Place, unit: Unit, times: Annotated[int, Field(ge=1)] = 1):
        """Go."""

    schema = spec(go).parameters
    assert schema["$defs"]["Place"]["properties"] == {"name": {"type": "string"}}
    assert schema["$defs"]["Unit"]["enum"] == ["m", "ft"]
    assert schema["properties"]["times"]["minimum"] == 1


def test_what_has_no_schema_is_refused_by_name():
    def untyped(x):
        """No type."""

    def open_ended(*args: int):
        """Any number."""

    def strange(x: object, handle: memoryview):
        """No JSON."""

    with pytest.raises(SpecError, match="'x' of tool untyped has no type"):
        arguments_model(untyped)
    with pytest.raises(SpecError, match=r"open_ended takes \*args"):
        arguments_model(open_ended)
    with pytest.raises(SpecError, match="strange takes what JSON cannot hold"):
        arguments_model(strange)
