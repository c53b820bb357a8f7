"""Graders as they are often written. Each believes something that the submission can write."""

from __future__ import annotations

import json

from training_gym.spec.sandboxes import ExecRequest, SandboxFileError

CHECK = """
import sys
sys.path.insert(0, '.')
expected = 42
import solution
found = solution.double(21)
assert found == expected, found
"""
TEST = """
import unittest
import solution
class Test(unittest.TestCase):
    def test(self):
        self.assertEqual(solution.double(21), 42)
if __name__ == "__main__":
    unittest.main()
"""
PATCHABLE = CHECK.replace("assert found == expected", "assert all([found == expected])")
CLOCK = (
    "import time\nstart = time.perf_counter()\n"
    + CHECK
    + "assert time.perf_counter() - start < 1\n"
)
ARGUMENT = """
import subprocess, sys
program = "import sys; sys.path.insert(0, '.'); import solution; print(solution.double(21))"
done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
assert done.stdout.strip() == sys.argv[2], done
"""


async def _code(sandbox, *argv, **env):
    result = await sandbox.exec(ExecRequest(argv=argv, env=env, timeout_s=20))
    return result


async def exit_code(sandbox):
    return (await _code(sandbox, "python3", "-c", CHECK)).ok


async def patchable(sandbox):
    return (await _code(sandbox, "python3", "-c", PATCHABLE)).ok


async def clock(sandbox):
    return (await _code(sandbox, "python3", "-c", CLOCK)).ok


async def unittest(sandbox):
    await sandbox.write_file("test_it.py", TEST.encode())
    return (await _code(sandbox, "python3", "test_it.py")).ok


async def python_path(sandbox):
    return (await _code(sandbox, "python3", "-c", CHECK, PYTHONPATH=sandbox.workspace)).ok


async def printed(sandbox):
    program = CHECK.replace(
        "assert found == expected, found", "import json; print(json.dumps({'passed': found == 42}))"
    )
    result = await _code(sandbox, "python3", "-c", program)
    return b'"passed": true' in result.stdout


async def expected_file(sandbox):
    await sandbox.write_file("expected.json", json.dumps(42).encode())
    return await exit_code(sandbox)


async def expected_argument(sandbox):
    return (await _code(sandbox, "python3", "-c", ARGUMENT, "--expected", "42")).ok


async def reward_file(sandbox):
    await sandbox.write_file("check.py", CHECK.encode())
    await _code(sandbox, "sh", "-c", "python3 check.py && echo 1 > reward.txt")
    return await _reward(sandbox)


async def reward_file_late(sandbox):
    await sandbox.write_file("check.py", CHECK.encode())
    script = "python3 check.py; if [ $? = 0 ]; then echo 1; else echo 0; fi > reward.txt; sleep 0.5"
    await _code(sandbox, "sh", "-c", script)
    return await _reward(sandbox)


async def _reward(sandbox):
    try:
        return (await sandbox.read_file("reward.txt")).strip() == b"1"
    except SandboxFileError:
        return False
