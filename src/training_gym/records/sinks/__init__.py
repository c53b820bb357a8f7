"""Other trackers, fed from a run's segments by a process of its own: training never waits."""

from training_gym.records.sinks.feed import Feeder, Sink, SinkRun
from training_gym.records.sinks.opening import SINKS, open_sink

__all__ = ["SINKS", "Feeder", "Sink", "SinkRun", "open_sink"]
