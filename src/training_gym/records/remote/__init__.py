"""Records over HTTP: a shipper beside the job, a collector beside the run directories.

A job that can reach nothing but the collector records as any other does, into segments on its own
disk; they are the spool. The shipper reads them and posts what is new.
"""

from training_gym.records.remote.collector import Collector, Receipt, issue_write_token
from training_gym.records.remote.link import Link, Refused, Unreachable, asked_for, register
from training_gym.records.remote.shipper import Shipper

__all__ = [
    "Collector",
    "Link",
    "Receipt",
    "Refused",
    "Shipper",
    "Unreachable",
    "asked_for",
    "issue_write_token",
    "register",
]
