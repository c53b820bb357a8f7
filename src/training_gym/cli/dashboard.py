"""`training-gym dashboard`: runs in the browser, on this machine and private."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from training_gym.dashboard.access import Role
    from training_gym.dashboard.serving import Serving

Host = Annotated[str, typer.Option(help="Address to listen on; loopback is private.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")]


def dashboard(
    port: Port = 7860,
    host: Host = "127.0.0.1",
    no_browser: NoBrowser = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Nobody may annotate, whatever their key.")
    ] = False,
    password: Annotated[
        str | None,
        typer.Option(
            envvar="TRAINING_GYM_DASHBOARD_PASSWORD",
            help="Let people sign in who know it. Better given by the variable:"
            " others on this machine can see command lines.",
        ),
    ] = None,
    password_writes: Annotated[
        bool, typer.Option("--password-writes", help="The password lets people annotate as well.")
    ] = False,
    proxy_header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Header in which a trusted reverse proxy says who somebody is."
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Of the proxy to trust; default: loopback."),
    ] = None,
    editor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whom of those the proxy names may annotate."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name by which it may be reached."),
    ] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make a new key: every address given out is void.")
    ] = False,
    url: Annotated[
        bool, typer.Option("--url", help="Only print the address of a dashboard at this port.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show runs in the browser, live.

    The printed address carries a key; without it nothing can be read. Nothing is sent anywhere.
    """
    serving = _serving()(
        host=host,
        port=port,
        read_only=read_only,
        password=password,
        password_role="editor" if password_writes else "viewer",
        proxy_header=proxy_header,
        proxies=tuple(proxy or ()),
        editors=tuple(editor or ()),
        allow_hosts=tuple(allow_host or ()),
        new_key=new_key,
    )
    if url:
        _announce(serving, port, as_json=as_json)
    else:
        open_dashboard(serving, browser=not (no_browser or as_json), as_json=as_json)


def open_dashboard(serving: Serving, *, browser: bool, as_json: bool) -> None:
    """Serve until interrupted; say where, and open a browser where there is one."""
    from training_gym.cli import output
    from training_gym.dashboard.serving import LOOPBACK, serve

    def ready(addresses: Mapping[Role, str]) -> None:
        _say(addresses, as_json=as_json)
        if serving.host not in LOOPBACK and not as_json:
            output.say(
                "the connection is not encrypted: put a reverse proxy with TLS before it, or use"
                " ssh -L"
            )
        if not as_json:
            output.say("stop it with Ctrl-C")
        if browser:
            _open(next(iter(addresses.values())))

    serve(serving, ready)


def require_server() -> None:
    """Raise a `PlatformError` that names the extra, unless the server's packages are there."""
    from importlib.util import find_spec

    from training_gym.cli import extras
    from training_gym.spec.errors import PlatformError

    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise PlatformError(
            f"the dashboard needs {' and '.join(missing)}", fix=extras.command("dashboard")
        )


def _serving() -> type[Serving]:
    require_server()
    from training_gym.dashboard.serving import Serving

    return Serving


def _announce(serving: Serving, port: int, *, as_json: bool) -> None:
    from training_gym.dashboard.serving import access_of, addresses

    _say(addresses(serving, port, access_of(serving)), as_json=as_json)


def _say(addresses: Mapping[Role, str], *, as_json: bool) -> None:
    from training_gym.cli import output

    if as_json:
        output.emit(
            "dashboard/1", url=next(iter(addresses.values())), viewer_url=addresses["viewer"]
        )
        return
    output.data(next(iter(addresses.values())))
    if "editor" in addresses:
        output.say(f"for others, to read only: {addresses['viewer']}")


def _open(address: str) -> None:
    """Open a graphical browser; on a machine without a display there is none."""
    import os
    import sys
    import webbrowser

    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return
    webbrowser.open(address)
