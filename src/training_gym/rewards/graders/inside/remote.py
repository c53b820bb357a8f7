"""Beside the tests: stand-ins for what the submission defines, in another sandbox.

Tests use them like the real thing. What comes back is plain data or another stand-in, so no code
of the submission ever runs here. A stand-in is never equal to plain data, whatever it would say.
"""

from __future__ import annotations

import builtins
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from training_gym.rewards.graders.inside.plain import TAG, NotPlain, decode, encode

T = TypeVar("T")


class SubmissionGone(Exception):
    """The submission's process ended, hung or broke the protocol."""


class SubmissionExit(Exception):
    """The submission asked to exit."""


class Wire:
    """Requests to the submission, answers from it; callbacks in between."""

    def __init__(self, lines: Any, out: Any) -> None:
        """`lines` is read from, `out` written to: the host passes both on."""
        self._lines = lines
        self._out = out
        self._functions: list[Callable[..., Any]] = []
        self._classes: dict[int, type] = {}
        self.findings: list[dict[str, str]] = []

    def send(self, message: dict[str, Any]) -> None:
        """One line to the host."""
        self._out.write(json.dumps(message).encode() + b"\n")
        self._out.flush()

    def ask(self, do: str, on: int | None = None, *given: Any, **more: Any) -> Any:
        """Have something done over there; raises what was raised there."""
        named = more.pop("named", {})
        self.send(
            {
                "do": do,
                "on": on,
                "args": [self.pack(item) for item in given],
                "named": {name: self.pack(item) for name, item in named.items()},
                **more,
            }
        )
        while "callback" in (answer := self._read()):
            self.send(self._called(answer))
        if "raised" in answer:
            raise self._error(answer["raised"])
        for index, item in answer.get("changed", {}).items():
            _become(given[int(index)], self.unpack(item))
        return self.unpack(answer["value"])

    def pack(self, value: Any) -> Any:
        """Plain data, stand-ins and functions of the tests."""
        return encode(value, self._refer)

    def unpack(self, data: Any) -> Any:
        """Plain data and stand-ins."""
        return decode(data, self._stand_in)

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"gone": "the channel closed"}
        if "gone" in answer:
            raise SubmissionGone(answer["gone"])
        return answer

    def _called(self, request: dict[str, Any]) -> dict[str, Any]:
        function = self._functions[request["callback"]]
        try:
            given = [self.unpack(item) for item in request["args"]]
            named = {name: self.unpack(item) for name, item in request["named"].items()}
            return {"value": self.pack(function(*given, **named))}
        except SubmissionGone:
            raise
        except Exception as error:  # noqa: BLE001 - the tests' own function, told to its caller
            return {"raised": type(error).__name__, "text": str(error)}

    def _refer(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Remote):
            return {TAG: "remote", "v": object.__getattribute__(value, "_gym_number")}
        if callable(value) and not isinstance(value, type):
            self._functions.append(value)
            return {TAG: "callback", "v": len(self._functions) - 1}
        raise NotPlain(
            f"a {type(value).__name__} cannot be given to the submission: "
            "plain data, functions and its own objects can"
        )

    def _stand_in(self, data: dict[str, Any]) -> Any:
        if data[TAG] != "remote":
            raise NotPlain(f"data of an unknown kind {data[TAG]!r}")
        if data["kind"] == "exception":
            return self._exception_class(data["v"], data["name"], data["mro"])
        return Remote(self, data)

    def _exception_class(self, number: int, name: str, mro: Sequence[str]) -> type:
        if name in mro[:1] and (known := _builtin_error(name)):
            return known
        if number not in self._classes:
            self._classes[number] = type(str(name), (_closest(mro),), {})
        return self._classes[number]

    def _error(self, raised: dict[str, Any]) -> BaseException:
        mro = [str(name) for name in raised["mro"]]
        if mro[0] in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
            self.findings.append({"kind": "early_exit", "evidence": f"raised {mro[0]}"})
            return SubmissionExit(f"the submission raised {mro[0]}")
        given = self.unpack(raised["args"])
        local = next((kind for kind in self._classes.values() if kind.__name__ == mro[0]), None)
        kind: Any = local or _builtin_error(mro[0]) or _closest(mro)
        try:
            error: BaseException = kind(*given)
            return error
        except TypeError:  # a class that wants other arguments
            return RuntimeError(f"{mro[0]}: {raised['text']}")


class Remote:
    """Stands for one object over there."""

    def __init__(self, wire: Wire, data: dict[str, Any]) -> None:
        object.__setattr__(self, "_gym_wire", wire)
        object.__setattr__(self, "_gym_number", data["v"])
        object.__setattr__(self, "_gym_data", data)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__name__", "__doc__", "__version__"):
            raise AttributeError(name)
        return self._gym_wire.ask("get", self._gym_number, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._gym_wire.ask("set", self._gym_number, value, name=name)

    def __call__(self, *given: Any, **named: Any) -> Any:  # noqa: D102 - as the real thing
        return self._gym_wire.ask("call", self._gym_number, *given, named=named)

    def __instancecheck__(self, instance: Any) -> bool:
        if not isinstance(instance, Remote):
            return False
        return self._gym_wire.ask("isinstance", self._gym_number, instance) is True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Remote):
            return self._gym_wire.ask("eq", self._gym_number, other) is True
        if self._gym_data["own_eq"] and self._claims(other) and self._claims(_unlike(other)):
            evidence = f"a {self._gym_data['type']} says it equals {other!r:.60}, and anything else"
            self._gym_wire.findings.append({"kind": "disguised_value", "evidence": evidence})
        return False

    def _claims(self, other: Any) -> bool:
        try:
            return self._gym_wire.ask("eq", self._gym_number, other) is True
        except SubmissionGone:
            raise
        except Exception:  # noqa: BLE001 - its comparison failed, so it claims nothing
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("remote", self._gym_number))

    def __bool__(self) -> bool:
        return self._gym_wire.ask("bool", self._gym_number) is True

    def __len__(self) -> int:
        return _exactly(int, self._gym_wire.ask("len", self._gym_number))

    def __contains__(self, item: Any) -> bool:
        return self._gym_wire.ask("contains", self._gym_number, item) is True

    def __iter__(self) -> Iterator[Any]:
        steps = self._gym_wire.ask("iter", self._gym_number)
        while got := self._gym_wire.ask("next", steps._gym_number):
            yield got[0]

    def __next__(self) -> Any:
        got = self._gym_wire.ask(
            "call", self._gym_wire.ask("get", self._gym_number, name="__next__")._gym_number
        )
        return got

    def __str__(self) -> str:
        return _exactly(str, self._gym_wire.ask("text", self._gym_number, name="str"))

    def __repr__(self) -> str:
        return _exactly(str, self._gym_wire.ask("text", self._gym_number, name="repr"))

    def __int__(self) -> int:
        return _exactly(int, self._gym_wire.ask("int", self._gym_number))

    def __float__(self) -> float:
        return _exactly(float, self._gym_wire.ask("float", self._gym_number))

    def __enter__(self) -> Any:
        return self._gym_wire.ask("enter", self._gym_number)

    def __exit__(self, *_: object) -> bool:
        return self._gym_wire.ask("exit", self._gym_number, None, None, None) is True


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: Remote, *given: Any) -> Any:
        return self._gym_wire.ask(name, self._gym_number, *given)

    return apply


for _name in ("getitem", "setitem", "delitem", "lt", "le", "gt", "ge", "add", "sub", "mul",
              "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "neg", "pos",
              "abs", "invert", "radd", "rsub", "rmul", "rtruediv"):  # fmt: skip
    setattr(Remote, f"__{_name}__", _operator(_name))


def _builtin_error(name: str) -> type[Exception] | None:
    kind = getattr(builtins, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def _closest(mro: Sequence[str]) -> type[Exception]:
    return next((kind for name in mro if (kind := _builtin_error(name))), Exception)


def _unlike(value: Any) -> Any:
    """Something of the same type that nothing honest equals."""
    number = secrets.randbits(48)
    probes = {int: number, float: number + 0.5, list: [number], tuple: (number,), set: {number}}
    return {**probes, dict: {number: number}, bytes: str(number).encode()}.get(
        type(value), str(number)
    )


def _exactly(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"the submission gave a {type(value).__name__} for a {kind.__name__}")
    found: T = value
    return found


def _become(target: Any, value: Any) -> None:
    """Do to the tests' own container what the submission did to its copy."""
    if isinstance(target, list | bytearray):
        target[:] = value
    elif isinstance(target, dict | set):
        target.clear()
        target.update(value)
