"""The child's side of a command: from the fork to the program, the source or the file written."""

from __future__ import annotations

import atexit
import io
import os
import resource
import signal
import site
import stat
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from training_gym.sandboxes.zygote.inside import syscalls as sc

NOT_FOUND, NOT_EXECUTABLE, NO_FOLDER = 127, 126, 125
_MIB = 1 << 20


class ImportState:
    """How modules are found; emptied in pid 1, so that it never loads code of an image."""

    def __init__(self) -> None:
        """Remember how it is now."""
        self._path, self._meta, self._hooks = sys.path[:], sys.meta_path[:], sys.path_hooks[:]

    @staticmethod
    def close() -> None:
        """Find nothing any more."""
        sys.path_importer_cache.clear()
        sys.path[:], sys.meta_path[:], sys.path_hooks[:] = [], [], []

    def reopen(self, first: str) -> None:
        """Find modules again, those in `first` before others."""
        sys.path[:] = [first, *(entry for entry in self._path if not entry.startswith("/proc/"))]
        sys.meta_path[:], sys.path_hooks[:] = self._meta, self._hooks


_raw: Any = sys.modules["_signal"]
"""What `signal` wraps: without enumerations, which are made of a great many objects."""
_DEFAULTS = tuple(
    int(number)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM)
)
_REPLACED: list[types.ModuleType] = []
"""Kept alive: to take the old `__main__` apart would write to memory all over the heap."""
_AFTER_FORK: list[Callable[[], None]] = []
"""What preloaded modules want done in a child that will use them: see `preload`."""
ORDER = 3
"""Descriptor by which a command that was forked ahead is told what to run."""


def preload(names: Iterable[str]) -> None:
    """Import modules; what they ask to be called after a fork is left to those who use them."""
    register = os.register_at_fork

    def later(*, after_in_child: Callable[[], None] | None = None, **_: Any) -> None:
        if after_in_child is not None:
            _AFTER_FORK.append(after_in_child)

    os.register_at_fork = later
    try:
        for name in names:
            __import__(name)
    finally:
        os.register_at_fork = register


def use_site() -> None:
    """What `site` does, but for the host's `.pth` files, which import whatever they like."""
    sys.path += [folder for folder in site.getsitepackages() if os.path.isdir(folder)]
    site.setquit()
    site.setcopyright()
    site.sethelper()


def prepare(stdio: tuple[int, int, int], order: int, confine: Callable[[], None]) -> None:
    """What does not depend on the command; `confine` is called before anything that matters."""
    os.setsid()
    for target, source in enumerate(stdio):
        os.dup2(source, target)
    if order < 0:
        sc.close_range(ORDER)
    else:
        if order != ORDER:
            os.dup2(order, ORDER)
        sc.close_range(ORDER + 1)
    confine()
    _raw.set_wakeup_fd(-1)
    # As any program expects them: process 1 and its interpreter had their own way with these.
    for number in _DEFAULTS:
        _raw.signal(number, _raw.SIG_DFL)


def become_command(request: dict[str, Any], imports: ImportState) -> NoReturn:
    """Never returns: runs what was asked for and exits. `prepare` came before."""
    if request.get("write"):
        _write_file(request)
    sc.set_dumpable(True)
    _limit(request)
    environment = request["env"]
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        _fail(NO_FOLDER, f"cannot enter {request['cwd']}: {error.strerror}")
    if request.get("code") and request.get("warm"):
        _run_source(request["code"], environment, imports)
    argv = request.get("argv") or ["python3", "-c", request["code"]]
    _execute(argv, environment)


def _limit(request: dict[str, Any]) -> None:
    if request.get("address_space_mb"):
        limit = request["address_space_mb"] * _MIB
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _execute(argv: list[str], environment: dict[str, str]) -> NoReturn:
    name = argv[0]
    folders = environment.get("PATH", "/usr/bin:/bin").split(":")
    candidates = [name] if "/" in name else [f"{folder}/{name}" for folder in folders]
    status, why = NOT_FOUND, "not found"
    for path in candidates:
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            status, why = NOT_EXECUTABLE, str(error.strerror)
    _fail(status, f"{name}: {why}")


def _fail(status: int, message: str) -> NoReturn:
    os.write(2, f"sandbox: {message}\n".encode("utf-8", "surrogateescape"))
    os._exit(status)


def _run_source(source: str, environment: dict[str, str], imports: ImportState) -> NoReturn:
    """What `python3 -c` does, in this interpreter."""
    _raw.signal(_DEFAULTS[0], _raw.default_int_handler)
    use_interpreter(environment, imports)
    status = 0
    try:
        exec(compile(source, "<string>", "exec"), sys.modules["__main__"].__dict__)
    except SystemExit as ending:
        status = _exit_status(ending.code)
    except BaseException:  # noqa: BLE001 (the user's program: whatever it raises is its traceback)
        traceback.print_exc()
        status = 1
    os._exit(_finish(status))


def use_interpreter(environment: dict[str, str], imports: ImportState) -> None:
    """What source in this process will rely on."""
    for hook in _AFTER_FORK:
        hook()
    for name, value in environment.items():
        os.environ[name] = value
    imports.reopen(os.getcwd())


def become_interpreter() -> None:
    """Streams, arguments, environment and `__main__` as a program finds them, for all forks."""
    os.environ.clear()
    sys.argv[:] = ["-c"]
    reader, writer = os.pipe()
    kept = [os.dup(standard) for standard in range(3)]
    # Made over pipes, which is what a command will have there: streams remember what cannot seek.
    for standard, end in enumerate((reader, writer, writer)):
        os.dup2(end, standard)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
        "utf-8",
        "backslashreplace",
        line_buffering=True,
    )
    for standard, old in enumerate(kept):
        os.dup2(old, standard)
    for fd in (reader, writer, *kept):
        os.close(fd)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    _REPLACED.append(sys.modules["__main__"])
    sys.modules["__main__"] = main


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _finish(status: int) -> int:
    """Run exit handlers and flush, as an interpreter that ends does."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 (a closed or full stdout: what Python calls status 120)
        return status or 120
    return status


def _write_file(request: dict[str, Any]) -> NoReturn:
    """Copy stdin to a file, as the sandbox's user would."""
    path = request["write"]
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # A FIFO or device would block or lie: only a regular file is written.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
        target = os.open(path, flags, request["mode"])
        if not stat.S_ISREG(os.fstat(target).st_mode):
            _fail(1, f"{path} is not a regular file")
        os.ftruncate(target, 0)
        os.fchmod(target, request["mode"])
        while chunk := os.read(0, _MIB):
            view = memoryview(chunk)
            while view:
                view = view[os.write(target, view) :]
    except OSError as error:
        _fail(1, f"{path}: {error.strerror}")
    os._exit(0)
