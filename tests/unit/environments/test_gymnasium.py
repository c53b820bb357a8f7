import asyncio

import pytest

from training_gym.environments.gymnasium import GymnasiumEnvironment
from training_gym.spec.code import Code
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy


class Space:
    """Whole numbers below a limit, without gymnasium."""

    def __init__(self, n):
        self.n = n

    def contains(self, action):
        return 0 <= action < self.n


class Discrete(Space):
    pass


class Corridor:
    """Walk right to the end."""

    made = []

    def __init__(self, length):
        self.length = length
        self.action_space = Discrete(2)
        self.closed = False
        Corridor.made.append(self)

    def reset(self, *, seed=None):
        self.seed, self.place = seed, 0
        return {"place": 0}, {}

    def step(self, action):
        self.place += 1 if action == 1 else -1
        ended, cut = self.place == self.length, self.place < -1
        return {"place": self.place}, float(ended), ended, cut, {}

    def close(self):
        self.closed = True


def shout(observation, info):
    return f"AT {observation['place']}"


def words(text, env):
    if text not in ("left", "right"):
        raise ValueError("say left or right")
    return int(text == "right")


def play(environment, *script, **metadata):
    task = Task(id="t", prompt="Walk.", metadata=metadata, split_key="t")
    policy, ctx = ScriptedPolicy(*script), PlainContext(seed=5)
    return asyncio.run(environment.run(task, policy, ctx)), policy, ctx


def corridor(**settings):
    return GymnasiumEnvironment(make=Corridor, options={"length": 2}, **settings)


def test_observations_are_shown_and_actions_read():
    outcome, policy, _ = play(corridor(instructions="0 or 1?"), "I say 1", "7", "1.", seed=11)
    assert outcome.status == "finished"
    assert outcome.score.turns == (0.0, 0.0, 1.0)
    assert policy.asked[0][-1].text == 'Walk.\n\n0 or 1?\n{"place": 0}'
    assert policy.asked[2][-1].text.startswith("That is no action: 7 is not in")
    assert policy.asked[2][-1].text.endswith('{"place": 1}')
    assert (Corridor.made[-1].seed, Corridor.made[-1].closed) == (11, True)


def test_functions_of_ones_own_show_and_read():
    outcome, policy, _ = play(corridor(shown_by=shout, read_by=words), "right", "up", "right")
    assert outcome.score.value == 1.0
    assert policy.asked[1][-1].text == "AT 1"
    assert policy.asked[2][-1].text == "That is no action: say left or right\nAT 1"


def test_its_own_limit_and_ours_truncate_with_what_was_earned():
    outcome, _, ctx = play(corridor(), "0", "0")
    assert (outcome.status, outcome.reason) == ("truncated", "the environment's own limit")
    assert ctx.score.turns == (0.0, 0.0)
    outcome, *_ = play(corridor(max_turns=1), "0")
    assert outcome.reason == "no end after 1 turns"


def test_it_travels_as_source():
    environment = corridor(shown_by=shout)
    code = Code.of(environment)
    assert Code(ref=code.ref, kwargs=code.kwargs).load().model_dump() == environment.model_dump()


def test_the_real_packages_environments_play():
    pytest.importorskip("gymnasium")
    environment = GymnasiumEnvironment(id="FrozenLake-v1", options={"is_slippery": False})
    outcome, policy, _ = play(environment, *"221121", seed=3)
    assert (outcome.status, outcome.score.value) == ("finished", 0.0)  # it fell into a hole
    outcome, policy, _ = play(environment, *"112122", seed=3)
    assert outcome.score.value == 1.0
    assert policy.asked[-1][-1].text == "14"
    pole = GymnasiumEnvironment(id="Pendulum-v1", max_turns=2)
    outcome, policy, _ = play(pole, "[0.5]", "[9.0]", seed=3)
    assert outcome.status == "truncated"
    assert "is not in Box" not in policy.asked[1][-1].text
