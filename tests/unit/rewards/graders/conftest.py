"""One event loop and one sandbox provider for all tests of graders."""

from __future__ import annotations

import asyncio
import sys

import pytest

from training_gym.sandboxes import registry


class Workplace:
    """Runs coroutines; `grader.using(place.provider)` works in its sandboxes."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.provider = registry.find("local")

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def grade(self, grader, submission, cases):
        async def graded():
            return await grader.using(self.provider).grade(submission, cases)

        return self.run(graded())


@pytest.fixture(scope="session")
def place():
    if sys.platform != "linux":
        pytest.skip("local sandboxes need Linux")
    place = Workplace()
    try:
        yield place
        place.run(place.provider.close())
    finally:
        place.runner.close()
