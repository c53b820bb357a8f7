"""The warm pool of sandboxes."""

from training_gym.sandboxes.pool.lease import Lease
from training_gym.sandboxes.pool.leases import LeaseJournal, reap
from training_gym.sandboxes.pool.metrics import PoolMetrics
from training_gym.sandboxes.pool.policy import PoolPolicy
from training_gym.sandboxes.pool.pool import SandboxPool

__all__ = ["Lease", "LeaseJournal", "PoolMetrics", "PoolPolicy", "SandboxPool", "reap"]
