import os
import signal

import pytest

from training_gym.platforms.local.platform import LocalPlatform
from training_gym.records.processes import identify
from training_gym.testing.platform_contract import CLAUSES, Subject, try_clause


def kill(ref):
    os.kill(int(ref.native_id), signal.SIGKILL)


SUBJECT = Subject(make=LocalPlatform, kill=kill, is_alive=lambda pid: identify(pid) is not None)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_local_platform_keeps_the_contract(clause, tmp_path):
    try_clause(clause, SUBJECT, tmp_path)
