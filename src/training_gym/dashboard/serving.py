"""Running the dashboard: where it listens, what it prints, and how it ends.

It listens on loopback unless told otherwise, writes no access log (addresses carry keys and what
people look at), and sends nothing anywhere.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.dashboard.access import Access, Role, read_secret
from training_gym.dashboard.patience import Patience
from training_gym.records.index import Index
from training_gym.spec.errors import PlatformError, SpecError
from training_gym.spec.home import home, runs_directory

PORT = 7860
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
STOP_S = 2.0
"""Seconds that open requests have left when the server ends."""
TURN_S = 0.0005
"""How long one thread computes while others wait. A request asks SQLite hundreds of small
questions and gives up its turn at each, so with Python's own 5 ms one long computation would make
it wait for seconds."""


@dataclass(frozen=True)
class Serving:
    """How to serve."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0: any free one."""
    read_only: bool = False
    password: str | None = None
    password_role: Role = "viewer"
    proxy_header: str | None = None
    proxies: tuple[str, ...] = ()
    editors: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    new_key: bool = False


def access_of(serving: Serving) -> Access:
    """Keys, password and proxy as the options say; raises `SpecError` and `PlatformError`."""
    if serving.password is not None and len(serving.password) < 8:
        raise SpecError(
            f"a password of {len(serving.password)} characters", fix="choose one of 8 or more"
        )
    if serving.editors and not serving.proxy_header:
        raise SpecError(
            "--editor names people, but nothing says who somebody is",
            fix="add --proxy-header, or leave --editor out",
        )
    return Access(
        secret=read_secret(home() / "dashboard" / "secret", new=serving.new_key),
        read_only=serving.read_only,
        password=serving.password,
        password_role=serving.password_role,
        header=serving.proxy_header,
        proxies=frozenset(serving.proxies) or Access.proxies,
        editors=frozenset(serving.editors),
        owner=_user(),
    )


def addresses(serving: Serving, port: int, access: Access) -> dict[Role, str]:
    """The addresses to open: the editor's, which may annotate, and the viewer's."""
    name = name_of(serving.host)
    roles: Sequence[Role] = ("viewer",) if serving.read_only else ("editor", "viewer")
    return {role: f"http://{name}:{port}/?token={access.key(role)}" for role in roles}


def name_of(host: str) -> str:
    """How an address that is listened on is written in the address to open."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"[{name}]" if ":" in name else name


def serve(serving: Serving, ready: Callable[[dict[Role, str]], None]) -> None:
    """Serve until interrupted; `ready` hears of the addresses once they answer.

    Raises `PlatformError` where the port is taken or the web app is not built.
    """
    from training_gym.dashboard.assets import WebApp

    sys.setswitchinterval(TURN_S)
    app = WebApp()
    access = access_of(serving)
    listening = listen(serving.host, serving.port)
    with listening:
        port: int = listening.getsockname()[1]
        asyncio.run(_serve(serving, app, access, listening, port, ready))


async def _serve(
    serving: Serving,
    app: Any,
    access: Access,
    listening: socket.socket,
    port: int,
    ready: Callable[[dict[Role, str]], None],
) -> None:
    from training_gym.dashboard.application import build
    from training_gym.dashboard.saved import SavedViews
    from training_gym.dashboard.state import ServerState

    folder = home() / "dashboard"
    state = ServerState(
        index=Index.default(),
        runs=runs_directory(),
        folder=folder,
        views=SavedViews(folder / "views.json"),
        access=access,
    )
    built = build(state, app=app, hosts=host_names(serving), cookie=f"training_gym_{port}")
    try:
        await run_server(
            built,
            listening,
            lambda: ready(addresses(serving, port, access)),
            ending=state.closing.set,  # streams end by themselves: the server need not wait
        )
    finally:
        await asyncio.to_thread(state.index.close)


async def run_server(
    app: Any,
    listening: socket.socket,
    started: Callable[[], None],
    *,
    ending: Callable[[], None] = lambda: None,
    patience: Patience | None = None,
) -> None:
    """Serve an application until interrupted; `started` is called once it answers."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http=(patience or Patience()).protocol,  # type: ignore[arg-type, unused-ignore]
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=64 * 1024,
        timeout_graceful_shutdown=int(STOP_S),
        lifespan="off",
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started and not running.done():
        await asyncio.sleep(0.02)
    if server.started:
        started()
    while not server.should_exit and not running.done():
        await asyncio.sleep(0.1)
    ending()
    await running


def host_names(serving: Serving) -> frozenset[str]:
    """The names that requests may ask for: a name of somebody else's is refused."""
    names = {"localhost", "127.0.0.1", "::1", serving.host, *serving.allow_hosts}
    if serving.host not in LOOPBACK:
        names |= {socket.gethostname(), socket.getfqdn()}
    return frozenset(names - {"0.0.0.0", "::"})


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; raises `PlatformError` where there can be none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise PlatformError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', error)}",
            fix="choose another with --port, or 0 for any that is free",
        ) from error
    return listening


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "owner"
