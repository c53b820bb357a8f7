"""Beside the submission: answers requests to import, call and look at what it defines.

One JSON request a line on stdin, one answer a line on what was stdout. The submission runs in this
process and can do here what it likes: all it can reach is its own answers.
"""

from __future__ import annotations

import builtins
import importlib
import json
import operator
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from training_gym.rewards.graders.inside.plain import TAG, NotPlain, decode, encode

_WATCHED = ("print", "len", "sorted", "sum", "isinstance", "open", "eval", "exec", "__import__",
            "int", "str", "list", "dict", "set", "tuple", "abs", "all", "any", "range", "type",
            "AssertionError", "__build_class__")  # fmt: skip

_EQ: Any = object.__eq__
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "sleep")


class Callee:
    """Objects of the submission by number, and what may be done with them."""

    def __init__(self, folder: str, key: str, out: Any) -> None:
        """`key` marks our lines, so that what the submission writes by accident is told apart."""
        self._key = key
        self._out = out
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._builtins: dict[str, Any] = {name: getattr(builtins, name) for name in _WATCHED}
        self._dumps, self._loads = json.dumps, json.loads
        self._patched: list[str] = []
        self._asked = 0
        self._clocks: dict[str, Any] = {name: getattr(time, name) for name in _CLOCKS}
        sys.path.append(folder)

    def serve(self, lines: Any) -> None:
        """Answer until nobody asks any more."""
        while line := lines.readline():
            self._send(self._answer(self._received(line)))

    def _received(self, line: str) -> dict[str, Any]:
        message: dict[str, Any] = self._loads(line)
        self._asked = message["n"]
        return message

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            given = [decode(item, self._local) for item in request.get("args", ())]
            named = {
                name: decode(item, self._local) for name, item in request.get("named", {}).items()
            }
            before = [self._shape(item) for item in given]
            value = self._do(request, given, named)
            answer = {"value": encode(value, self._reference)}
        except BaseException as error:  # noqa: BLE001 - whatever the submission raises
            answer = {"raised": self._raised(error)}
        else:
            after = [self._shape(item) for item in given]
            changed = {index: item for index, item in enumerate(after) if item != before[index]}
            if changed:
                answer["changed"] = changed
        self._note_patches()
        return {**answer, "patched": self._patched}

    def _do(self, request: dict[str, Any], given: list[Any], named: dict[str, Any]) -> Any:
        what = request["do"]
        if what == "import":
            return importlib.import_module(request["name"])
        target = self._objects[request["on"]]
        if what == "get":
            return getattr(target, request["name"])
        if what == "set":
            return setattr(target, request["name"], given[0])
        if what == "call":
            return target(*given, **named)
        if what == "isinstance":
            return isinstance(given[0], target)
        if what == "text":
            return (str if request["name"] == "str" else repr)(target)
        if what == "iter":
            return _Iterator(iter(target))
        if what == "next":
            return target.next()
        return _OPERATIONS[what](target, *given)

    def _shape(self, item: Any) -> Any:
        """What a container holds, to see whether a call changed it."""
        if type(item) in (list, dict, set, bytearray):
            return encode(item, self._reference)
        return None

    def _reference(self, value: Any) -> dict[str, Any]:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)  # kept alive, so that its id stays its own
        kind = "object"
        extra: dict[str, Any] = {}
        if isinstance(value, type):
            kind = "exception" if issubclass(value, BaseException) else "class"
            extra = {"mro": [base.__name__ for base in value.__mro__]}
        return {
            TAG: "remote",
            "v": number,
            "kind": kind,
            "name": getattr(value, "__name__", type(value).__qualname__),
            "type": type(value).__qualname__,
            "own_eq": getattr(type(value), "__eq__", None) is not object.__eq__
            and kind == "object",
            "module": type(value).__module__,
            **extra,
        }

    def _local(self, data: dict[str, Any]) -> Any:
        if data[TAG] == "remote":
            return self._objects[data["v"]]
        if data[TAG] == "callback":
            return _Callback(self, data["v"])
        raise NotPlain(f"data of an unknown kind {data[TAG]!r}")

    def call_back(self, number: int, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function of whoever asks, in the middle of an answer."""
        self._send(
            {
                "callback": number,
                "args": [encode(item, self._reference) for item in given],
                "named": {name: encode(item, self._reference) for name, item in named.items()},
            }
        )
        while True:
            answer = self._received(sys.stdin.readline())
            if "do" not in answer:
                break
            self._send(self._answer(answer))  # the function itself asks for something
        if "raised" in answer:
            raise getattr(builtins, answer["raised"], RuntimeError)(answer.get("text", ""))
        return decode(answer["value"], self._local)

    def _raised(self, error: BaseException) -> dict[str, Any]:
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - an exception's own text
            text = ""
        try:
            arguments = encode(list(error.args))
        except BaseException:  # noqa: BLE001 - arguments that are not data
            arguments = [text]
        return {
            "mro": [base.__name__ for base in type(error).__mro__],
            "module": type(error).__module__,
            "text": text[:2000],
            "args": arguments,
        }

    def _note_patches(self) -> None:
        found = [name for name, kept in self._builtins.items() if _now(name) is not kept]
        found += [
            f"time.{name}" for name, kept in self._clocks.items() if getattr(time, name) is not kept
        ]
        if json.dumps is not self._dumps or json.loads is not self._loads:
            found.append("json")
        self._patched = sorted({*self._patched, *found})

    def _send(self, message: dict[str, Any]) -> None:
        text = self._dumps({"key": self._key, "n": self._asked, **message}) + "\n"
        self._out.write(text.encode())
        self._out.flush()


class _Iterator:
    """Steps through something of the submission."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def next(self) -> Any:
        for item in self._inner:
            return [item]
        return []


class _Callback:
    """Stands for a function of whoever asks."""

    def __init__(self, callee: Callee, number: int) -> None:
        self._callee = callee
        self._number = number

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._callee.call_back(self._number, given, named)


def _now(name: str) -> Any:
    return getattr(builtins, name, None)


def _power(base: Any, exponent: Any) -> Any:
    return base**exponent


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "len": len, "bool": bool, "int": int, "float": float, "hash": hash,
    "getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem,
    "contains": operator.contains, "eq": operator.eq, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "add": operator.add, "sub": operator.sub,
    "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": _power, "matmul": operator.matmul, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "neg": operator.neg, "pos": operator.pos,
    "abs": abs, "invert": operator.invert,
    "radd": lambda a, b: b + a, "rsub": lambda a, b: b - a, "rmul": lambda a, b: b * a,
    "rtruediv": lambda a, b: b / a,
    "enter": lambda a: a.__enter__(), "exit": lambda a, *b: a.__exit__(*b),
}  # fmt: skip


def main() -> None:
    """Serve; the first line names the folder and the key."""
    first = json.loads(sys.stdin.readline())
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3000))
    Callee(first["folder"], first["key"], out).serve(sys.stdin)
