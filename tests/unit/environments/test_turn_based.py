import asyncio

import pytest

from training_gym.environments.single_turn import SingleTurn
from training_gym.environments.turn_based import Turn, TurnBased
from training_gym.spec.environment import Environment
from training_gym.spec.messages import assistant, system, user
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy


class Countdown(TurnBased):
    """Say `down` until nothing is left."""

    max_turns = 3

    def reset(self, task, ctx):
        return {"left": task.answer}, f"{task.answer} left."

    def step(self, state, text, ctx):
        if text == "down":
            state["left"] -= 1
        return Turn(f"{state['left']} left.", reward=0.5, done=state["left"] == 0)


def play(environment, policy, prompt=(), answer=2):
    task = Task(id="t", prompt=prompt, answer=answer, split_key="t")
    return asyncio.run(environment.run(task, policy, PlainContext()))


def test_both_are_environments():
    assert isinstance(SingleTurn(), Environment)
    assert isinstance(Countdown(), Environment)


def test_turns_alternate_until_done():
    policy = ScriptedPolicy("down", "down")
    outcome = play(Countdown(), policy, prompt=(user("Count."),))
    assert outcome.status == "finished"
    assert outcome.score.value == 1.0
    assert outcome.score.turns == (0.5, 0.5)
    assert policy.asked == [
        [user("Count.\n\n2 left.")],
        [user("Count.\n\n2 left."), assistant("down"), user("1 left.")],
    ]


def test_too_many_turns_truncate_and_keep_the_rewards():
    ctx = PlainContext()
    task = Task(id="t", prompt=(), answer=2, split_key="t")
    policy = ScriptedPolicy("up", "down", "up")
    outcome = asyncio.run(Countdown().run(task, policy, ctx))
    assert (outcome.status, outcome.reason) == ("truncated", "no end after 3 turns")
    assert ctx.score.turns == (0.5, 0.5, 0.5)


class Slow(Countdown):
    """The same with everything asynchronous, and a state that is kept and closed."""

    def __init__(self):
        self.closed = []

    async def reset(self, task, ctx):
        await asyncio.sleep(0)
        return super().reset(task, ctx)

    async def step(self, state, text, ctx):
        if text == "break":
            raise OSError("the simulator died")
        return super().step(state, text, ctx)

    def describe(self, state):
        return state

    async def close(self, state):
        self.closed.append(state)


@pytest.mark.parametrize("texts", [("down", "down"), ("down", "break")])
def test_asynchronous_steps_and_a_state_that_is_kept_and_closed(texts):
    environment, ctx = Slow(), PlainContext()
    task = Task(id="t", prompt=(), answer=2, split_key="t")
    policy = ScriptedPolicy(*texts)
    if "break" in texts:
        with pytest.raises(OSError, match="died"):
            asyncio.run(environment.run(task, policy, ctx))
        left = 1
    else:
        assert asyncio.run(environment.run(task, policy, ctx)).score.value == 1.0
        left = 0
    assert ctx.kept == {"state": {"left": left}}
    assert environment.closed == [{"left": left}]


@pytest.mark.parametrize(
    ("prompt", "opening"),
    [
        ((), [user("2 left.")]),
        ("", [user("2 left.")]),
        ("Count.", [user("Count.\n\n2 left.")]),
        ((system("Rules."),), [system("Rules."), user("2 left.")]),
        ((system("Rules."), user("Go.")), [system("Rules."), user("Go.\n\n2 left.")]),
        ((system("Rules."), user("")), [system("Rules."), user("2 left.")]),
    ],
)
def test_the_first_observation_follows_the_prompt(prompt, opening):
    policy = ScriptedPolicy("down", "down")
    play(Countdown(), policy, prompt=prompt)
    assert policy.asked[0] == opening


class Silent(Countdown):
    def reset(self, task, ctx):
        return {"left": 1}, ""


def test_an_empty_observation_adds_nothing():
    policy = ScriptedPolicy("down")
    play(Silent(), policy, prompt=(user("Count."),))
    assert policy.asked == [[user("Count.")]]


def test_episodes_side_by_side_keep_their_state_apart():
    environment = Countdown()

    async def both():
        tasks = [Task(id=str(n), prompt="", answer=n, split_key=str(n)) for n in (1, 2)]
        policies = [ScriptedPolicy("down"), ScriptedPolicy("down", "down")]
        runs = (environment.run(t, p, PlainContext()) for t, p in zip(tasks, policies, strict=True))
        return await asyncio.gather(*runs)

    assert [len(outcome.score.turns) for outcome in asyncio.run(both())] == [1, 2]


def test_a_single_turn_asks_once():
    policy = ScriptedPolicy("4")
    outcome = play(SingleTurn(), policy, prompt=(user("2+2?"),))
    assert (outcome.status, outcome.score) == ("finished", None)
    assert policy.asked == [[user("2+2?")]]
    raw = ScriptedPolicy("4")
    play(SingleTurn(), raw, prompt="2+2=")
    assert raw.asked == ["2+2="]
