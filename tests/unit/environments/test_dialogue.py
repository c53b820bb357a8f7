import asyncio

import pytest

from training_gym.environments.dialogue import UserSimulation
from training_gym.spec.messages import assistant, system, user
from training_gym.spec.tasks import Task
from training_gym.testing.scripted_policy import PlainContext, ScriptedPolicy

TASK = Task(
    id="t",
    prompt=(system("You sell tickets."),),
    metadata={"wants": "You want a ticket to Rome."},
    split_key="t",
)


def play(environment, policy, player, name, task=TASK):
    ctx = PlainContext(agents={name: player})
    return asyncio.run(environment.run(task, policy, ctx)), ctx


@pytest.mark.parametrize(("who", "name"), [("smollm2-135m", "smollm2-135m"), (None, "user")])
def test_user_and_policy_each_see_their_own_side(who, name):
    policy = ScriptedPolicy("Where to?", "Here it is.")
    player = ScriptedPolicy("A ticket, please.", "Rome.", "Thanks! [done]")
    outcome, ctx = play(UserSimulation(user=who), policy, player, name)
    assert outcome.status == "finished"
    assert policy.asked[1] == [
        system("You sell tickets."),
        user("A ticket, please."),
        assistant("Where to?"),
        user("Rome."),
    ]
    rules = system("You want a ticket to Rome.\n\nWhen you need nothing more, say [done].")
    assert player.asked[1] == [
        rules,
        user("Begin."),
        assistant("A ticket, please."),
        user("Where to?"),
    ]
    assert ctx.kept["user"] == ["A ticket, please.", "Rome.", "Thanks! [done]"]


def test_a_plain_prompt_is_what_the_policy_is_told():
    task = Task(id="t", prompt="Sell tickets.", split_key="t")
    policy = ScriptedPolicy("Yes?")
    play(UserSimulation(max_turns=1), policy, ScriptedPolicy("Hello."), "user", task)
    assert policy.asked[0] == [system("Sell tickets."), user("Hello.")]


def test_a_user_who_never_ends_truncates():
    policy, player = ScriptedPolicy("a", "b"), ScriptedPolicy("1", "2")
    outcome, _ = play(UserSimulation(max_turns=2), policy, player, "user")
    assert (outcome.status, outcome.reason) == ("truncated", "not done after 2 turns")
