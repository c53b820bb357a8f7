"""The processes of a run together: started, loaded, put to work, ended."""

from __future__ import annotations

import tempfile
from pathlib import Path

from training_gym.engines.local.core import Core, Origin, load_core
from training_gym.engines.local.parallel.ranks import Rank
from training_gym.engines.local.trainer import LocalTrainer


class Team:
    """The leading process and the others; with `data_parallel=1` there are no others."""

    def __init__(self, origin: Origin) -> None:
        """Nothing is started yet."""
        self._origin = origin
        self._engine = origin.plan.run.recipe.engine
        self._joined = False
        self.ranks: list[Rank] = []

    def load(self) -> Core:
        """Start the others and load the weights everywhere.

        Raises:
            EngineError: there are too few GPUs, or one of the others has ended.
        """
        if self._engine.data_parallel > 1:
            from training_gym.engines.local.parallel.group import require_devices

            require_devices(self._engine)
        self.ranks = [Rank(number) for number in range(1, self._engine.data_parallel)]
        loaded = [rank.call("load", self._origin) for rank in self.ranks]
        core = load_core(self._origin)
        for answer in loaded:
            answer.result()
        return core

    def trainer(self, core: Core) -> LocalTrainer:
        """Make the trainers everywhere; the leader's one."""
        if not self.ranks:
            return core.trainer()
        from training_gym.engines.local.parallel.group import join

        with tempfile.TemporaryDirectory(prefix="training-gym-") as folder:
            meeting_point = Path(folder) / "members"
            joined = [rank.call("join", meeting_point) for rank in self.ranks]
            join(self._engine, 0, meeting_point)
            self._joined = True
            made = core.trainer(self.ranks)
            for answer in joined:
                answer.result()
        return made

    def close(self) -> None:
        """End the others."""
        for rank in self.ranks:
            rank.close()
        if self._joined:
            from training_gym.engines.local.parallel.group import leave

            leave()
