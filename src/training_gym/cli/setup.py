"""`training-gym setup`: look at this machine, then open the dashboard."""

from __future__ import annotations

import typer

from training_gym.cli.dashboard import NoBrowser, Port
from training_gym.cli.options import AsJson


def setup(port: Port = 7860, no_browser: NoBrowser = False, as_json: AsJson = False) -> None:
    """Say what this machine has and lacks, then open the dashboard.

    What `doctor` finds missing keeps it from nothing; what it finds broken ends it.
    """
    from training_gym.cli.dashboard import open_dashboard, require_server
    from training_gym.cli.doctor import doctor

    try:
        doctor(as_json=as_json)
    except typer.Exit as ended:
        if ended.exit_code:
            raise
    require_server()
    from training_gym.dashboard.serving import Serving

    open_dashboard(Serving(port=port), browser=not (no_browser or as_json), as_json=as_json)
