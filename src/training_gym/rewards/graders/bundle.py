"""Our own source for sandboxes, as one text: modules that need only each other."""

from __future__ import annotations

import functools
from pathlib import Path

_PACKAGE = "training_gym.rewards.graders.inside"


@functools.cache
def bundle(*names: str) -> str:
    """Python source that makes the modules importable, in order, and runs `main` of the last."""
    folder = Path(__file__).parent / "inside"
    sources = [(_PACKAGE, "")]
    sources += [(f"{_PACKAGE}.{name}", (folder / f"{name}.py").read_text()) for name in names]
    return (
        "import sys, types\n"
        f"for name, source in {sources!r}:\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    if '.inside.' in name:\n"
        "        setattr(sys.modules[name.rpartition('.')[0]], name.rpartition('.')[2], module)\n"
        "    exec(compile(source, name, 'exec'), module.__dict__)\n"
        "module.main()\n"
    )
