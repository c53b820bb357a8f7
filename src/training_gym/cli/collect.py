"""`training-gym collect`: takes the records of jobs that run elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from training_gym.dashboard.collecting import Collects


def collect(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 7861,
    host: Annotated[
        str, typer.Option(help="Address to listen on; loopback is private.")
    ] = "127.0.0.1",
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make new keys: those given out register nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take the records of runs on other machines, as they are written.

    Start a run there with $TRAINING_GYM_COLLECTOR and $TRAINING_GYM_COLLECTOR_TOKEN as printed, and
    it appears here. /metrics has newest values for Prometheus.
    """
    from training_gym.cli.dashboard import require_server

    require_server()
    from training_gym.dashboard.collecting import Collecting
    from training_gym.dashboard.collecting import collect as serve

    serve(Collecting(host, port, new_key), lambda told: _say(told, as_json=as_json))


def _say(told: Collects, *, as_json: bool) -> None:
    from training_gym.cli import output

    if as_json:
        output.emit("collect/1", url=told.url, key=told.key, read_key=told.read_key)
        return
    output.data(f"export TRAINING_GYM_COLLECTOR={told.url}")
    output.data(f"export TRAINING_GYM_COLLECTOR_TOKEN={told.key}")
    output.say("set these where a run is started, and it appears here as it is written")
    output.say(f"Prometheus reads {told.url}/metrics with the bearer token {told.read_key}")
    if told.url.partition("://")[2].partition(":")[0] not in ("127.0.0.1", "localhost"):
        output.say("the connection is not encrypted: put a reverse proxy with TLS before it")
    output.say("stop it with Ctrl-C; look with training-gym dashboard")
