import asyncio
import contextlib

import pytest

from training_gym.environments.single_turn import SingleTurn
from training_gym.rollouts.attempts import Attempt, Limits
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.rollouts.services import Services
from training_gym.spec.drift import DriftLimits
from training_gym.spec.episodes import Outcome, Score
from training_gym.spec.errors import EngineError, EnvironmentFailure
from training_gym.spec.messages import assistant, user
from training_gym.spec.sampling import Completion, Sampling
from training_gym.testing.fake_sandboxes import FakeProvider
from training_gym.testing.scripted_sampler import ScriptedSampler

SAMPLING = Sampling(max_tokens=8)


class Scene:
    """An environment from a function; counts how often it was played."""

    def __init__(self, play):
        self._play = play
        self.num_runs = 0

    async def run(self, task, policy, ctx):
        self.num_runs += 1
        return await self._play(task, policy, ctx)


class Stage:
    """Plays attempts at one task with a scripted sampler."""

    def __init__(self, codec, task, counters):
        self.codec = codec
        self.task = task
        self.counters = counters
        self.sampler = None

    def play(self, environment, script=("yes",) * 99, members=1, seed=1, visit=0, **limits):
        self.sampler = ScriptedSampler(self.codec, script)
        presence = limits.pop("presence", None)
        drift = limits.pop("drift", None)
        runner = EpisodeRunner(
            SampledPlayers(self.sampler, self.codec, seed=seed, drift=drift),
            environment,
            seed=seed,
            limits=Limits(**{"max_turns": 4, "timeout_s": 60.0, **limits}),
            presence=presence,
        )
        attempts = [Attempt(self.task, member, visit, "train", "g") for member in range(members)]
        return asyncio.run(runner.play_group(attempts, SAMPLING, self.counters))


@pytest.fixture
def stage(codec, task, counters):
    return Stage(codec, task, counters)


def test_a_finished_episode_is_complete(stage, task, counters):
    (episode,) = stage.play(SingleTurn())
    assert (episode.id, episode.group, episode.member, episode.stream) == ("g.0", "g", 0, "train")
    assert episode.outcome == Outcome()
    assert [message.role for message in episode.messages] == ["user", "assistant"]
    assert (episode.completion, episode.answer) == ("yes", "it")
    assert episode.num_tokens == 4  # three bytes and the end of the turn
    assert (episode.counters, episode.retries, episode.score) == (counters, 0, None)
    (call,) = stage.sampler.calls
    assert (call.key.task, call.key.member, call.key.turn, call.session) == ("t", 0, 0, "g.0")
    assert call.sampling.max_tokens == 8


def test_a_raw_prompt_is_completed(codec, task, counters):
    raw = Stage(codec, task.changed(prompt="1+1="), counters)
    (episode,) = raw.play(SingleTurn(), ["2"])
    assert [message.text for message in episode.messages] == ["1+1=", "2"]
    assert raw.sampler.calls[0].prompt.token_ids == tuple(codec.encode("1+1="))


def test_an_answer_without_end_is_truncated_not_finished(stage):
    (episode,) = stage.play(SingleTurn(), ["longer than eight tokens"])
    assert episode.outcome.status == "truncated"
    assert episode.outcome.reason == "answer ended by length"
    assert episode.completion == "longer t"


def test_a_prompt_without_room_fails_the_model_not_the_run(stage):
    empty = Completion(token_ids=(), logprobs=(), versions=(), stop_reason="context")
    (episode,) = stage.play(SingleTurn(), [empty])
    assert episode.outcome.status == "truncated"
    assert episode.trajectories == ()


def test_time_that_is_up_truncates(stage):
    async def endless(task, policy, ctx):
        await policy.chat(task.prompt)
        await asyncio.Event().wait()

    scene = Scene(endless)
    (episode,) = stage.play(scene, timeout_s=0.05)
    assert (episode.outcome.status, episode.outcome.reason) == ("truncated", "0.05 s")
    assert scene.num_runs == 1
    assert episode.num_tokens == 4  # what was sampled before is kept


def test_an_environments_own_timeout_is_a_failure_of_infrastructure(stage):
    async def slow_service(task, policy, ctx):
        raise TimeoutError

    (episode,) = stage.play(Scene(slow_service))
    assert episode.outcome.status == "infrastructure_failed"


def test_what_raises_once_is_played_again(stage):
    async def flaky(task, policy, ctx):
        if scene.num_runs == 1:
            raise ConnectionError("lost")
        await policy.chat(task.prompt)
        return Outcome(score=Score(value=1.0))

    scene = Scene(flaky)
    (episode,) = stage.play(scene)
    assert (scene.num_runs, episode.retries) == (2, 1)
    assert episode.outcome.status == "finished"
    assert episode.score == Score(value=1.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionError("lost"), "ConnectionError: lost (test_runner.py, line "),
        (EnvironmentFailure("no sandbox", fix="start one"), "no sandbox"),
        (SystemExit(3), "SystemExit: 3 (test_runner.py, line "),
    ],
)
def test_what_raises_twice_is_dropped_with_its_reason(stage, error, reason):
    async def broken(task, policy, ctx):
        await policy.chat(task.prompt)
        raise error

    scene = Scene(broken)
    (episode,) = stage.play(scene)
    assert (scene.num_runs, episode.retries) == (2, 1)
    assert episode.outcome.status == "infrastructure_failed"
    assert episode.outcome.reason.startswith(reason)
    assert episode.score is None


@pytest.mark.parametrize("returned", [None, 1.0, {"status": "finished"}])
def test_a_wrong_return_is_named(stage, returned):
    async def wrong(task, policy, ctx):
        return returned

    (episode,) = stage.play(Scene(wrong))
    assert episode.outcome.status == "infrastructure_failed"
    assert episode.outcome.reason == f"run() returned {returned!r} instead of an Outcome"


def test_a_failed_episode_has_no_score_even_if_it_was_given_one(stage):
    async def confused(task, policy, ctx):
        return Outcome(status="infrastructure_failed", score=Score(value=1.0))

    (episode,) = stage.play(Scene(confused))
    assert episode.score is None


def test_an_error_of_ours_ends_the_run(stage):
    with pytest.raises(EngineError, match="broken"):
        stage.play(SingleTurn(), [EngineError("broken", fix="mend it")])


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ([], "nothing for the policy to answer"),
        ([user("x"), assistant("y")], "nothing for the policy to answer"),
        ("hello", "the text 'hello' instead of messages"),
        ([{"role": "user", "content": "x"}], "which is no message"),
    ],
)
def test_what_cannot_be_asked_fails_this_episode_alone(stage, asked, reason):
    async def confused(task, policy, ctx):
        await policy.chat(task.prompt)
        await policy.chat(asked)

    (episode,) = stage.play(Scene(confused))
    assert episode.outcome.status == "infrastructure_failed"
    assert reason in episode.outcome.reason
    assert episode.outcome.fix


def test_an_environment_that_cancels_itself_fails_its_episode(stage):
    async def cancelled(task, policy, ctx):
        await policy.chat(task.prompt)
        raise asyncio.CancelledError

    (episode,) = stage.play(Scene(cancelled))
    assert episode.outcome.status == "infrastructure_failed"
    assert "CancelledError" in episode.outcome.reason


async def chatter(task, policy, ctx):
    messages = list(task.prompt)
    while True:
        reply = await policy.chat(messages)
        messages = [*messages, reply, user("more")]


def test_the_turn_limit_truncates_and_keeps_the_turns(stage):
    (episode,) = stage.play(Scene(chatter), max_turns=3)
    assert (episode.outcome.status, episode.outcome.reason) == ("truncated", "3 turns")
    assert [message.role for message in episode.messages].count("assistant") == 3
    (trajectory,) = episode.trajectories
    assert trajectory.num_sampled == 12
    assert [call.key.turn for call in stage.sampler.calls] == [0, 1, 2]
    # Each turn's prompt is the one before, what was sampled, and what is new.
    prompts = [call.prompt.token_ids for call in stage.sampler.calls]
    assert prompts[2][: len(prompts[1])] == prompts[1]


def test_random_numbers_depend_on_seed_task_member_and_visit_only(codec, task, counters):
    async def dice(task, policy, ctx):
        await policy.chat(task.prompt)
        return Outcome(artifacts={"dice": ctx.rng.random()})

    def rolled(members=1, seed=1, visit=0, **changes):
        stage = Stage(codec, task.changed(**changes), counters.changed(batch=members))
        episodes = stage.play(Scene(dice), members=members, seed=seed, visit=visit)
        return [episode.outcome.artifacts["dice"] for episode in episodes]

    (alone,) = rolled()
    together = rolled(members=3)
    assert together[0] == alone
    others = [*rolled(seed=2), *rolled(visit=1), *rolled(id="u"), *together[1:]]
    assert len({alone, *others}) == 6


def test_the_sampler_knows_who_is_in_play(stage):
    present = []
    history = []

    @contextlib.asynccontextmanager
    async def presence(session):
        present.append(session)
        try:
            yield
        finally:
            present.remove(session)

    def answer(prompt, key):
        history.append((f"g.{key.member}", set(present)))
        return "yes"

    stage.play(SingleTurn(), answer, members=3, presence=presence)
    assert present == []
    assert [session in there for session, there in history] == [True] * 3
    assert history[0][1] == {"g.0", "g.1", "g.2"}


def test_other_agents_are_recorded_under_their_names(stage):
    async def debate(task, policy, ctx):
        claim = await policy.chat(task.prompt)
        await ctx.policy("critic").chat([user(f"Is {claim.text!r} right?")])
        return Outcome()

    (episode,) = stage.play(Scene(debate), ["it", "no"])
    assert [t.agent for t in episode.trajectories] == ["policy", "critic"]
    assert episode.completion == "it"
    assert [call.key.stream for call in stage.sampler.calls] == ["train", "train/critic"]


def test_a_turn_may_bring_its_own_sampling(stage):
    async def careful(task, policy, ctx):
        await policy.chat(task.prompt, sampling=Sampling(temperature=0))
        return Outcome()

    stage.play(Scene(careful))
    assert stage.sampler.calls[0].sampling == Sampling(temperature=0, max_tokens=8)


def test_what_the_environment_logs_stays_with_the_episode(stage):
    async def talkative(task, policy, ctx):
        await policy.chat(task.prompt)
        ctx.log("asked", left=ctx.deadline_s > 0)
        return Outcome(artifacts={"kept": 1})

    (episode,) = stage.play(Scene(talkative))
    assert episode.outcome.artifacts == {"kept": 1, "log": [{"message": "asked", "left": True}]}


class Stubborn:
    """Goes on whatever happens."""

    async def run(self, task, policy, ctx):
        while True:
            try:
                await policy.chat(task.prompt)
            except Exception:  # noqa: BLE001 - what a careless environment does
                continue


def test_an_environment_that_catches_everything_meets_the_turn_limit(stage):
    (episode,) = stage.play(Stubborn())
    assert (episode.outcome.status, episode.outcome.reason) == ("truncated", "4 turns")


def test_tokens_of_all_agents_together_are_limited(stage):
    async def debate(task, policy, ctx):
        while True:
            await policy.chat(task.prompt)
            await ctx.policy("critic").chat([user("?")])

    (episode,) = stage.play(Scene(debate), ["abc"] * 9, max_tokens=10)
    assert (episode.outcome.status, episode.outcome.reason) == ("truncated", "10 tokens")
    # "abc" and its stop token are four: the third answer may have two, then there are none left.
    assert [call.sampling.max_tokens for call in stage.sampler.calls] == [8, 6, 2]
    assert episode.num_tokens == 10


def test_an_answer_cut_by_the_episodes_tokens_says_so(stage):
    (episode,) = stage.play(SingleTurn(), ["abcdefg"], max_tokens=3)
    assert (episode.outcome.status, episode.outcome.reason) == ("truncated", "3 tokens")


def test_what_was_kept_stays_when_a_limit_ends_the_episode(stage):
    async def keeps(task, policy, ctx):
        for turn in range(9):
            await policy.chat(task.prompt)
            ctx.keep({"turn": turn, "first": 0}, score=Score(value=float(turn)))

    (episode,) = stage.play(Scene(keeps))
    assert episode.outcome.status == "truncated"
    assert episode.outcome.artifacts == {"turn": 3, "first": 0}
    assert episode.score.value == 3.0


def test_an_outcomes_own_words_come_before_what_was_kept(stage):
    async def keeps(task, policy, ctx):
        await policy.chat(task.prompt)
        ctx.keep({"note": "kept", "more": 1}, score=Score(value=1.0))
        return Outcome(score=Score(value=2.0), artifacts={"note": "returned"})

    (episode,) = stage.play(Scene(keeps))
    assert episode.score.value == 2.0
    assert episode.outcome.artifacts == {"note": "returned", "more": 1}


def test_a_failed_episode_keeps_its_artifacts_and_no_score(stage):
    async def fails(task, policy, ctx):
        ctx.keep({"seen": "before it broke"}, score=Score(value=1.0))
        raise OSError("gone")

    (episode,) = stage.play(Scene(fails))
    assert episode.outcome.status == "infrastructure_failed"
    assert episode.outcome.artifacts == {"seen": "before it broke"}
    assert episode.score is None


def test_agents_that_talk_side_by_side_meet_the_limit_together(stage):
    async def crowd(task, policy, ctx):
        async with asyncio.TaskGroup() as tasks:
            for name in ("a", "b"):
                tasks.create_task(self_talk(ctx.policy(name)))
        return Outcome()

    async def self_talk(policy):
        while True:
            await policy.chat([user("go on")])

    (episode,) = stage.play(Scene(crowd))
    assert (episode.outcome.status, episode.outcome.reason) == ("truncated", "4 turns")
    assert set(episode.conversations) == {"a", "b"}


def test_sandboxes_are_lent_once_each_and_gone_afterwards(stage):
    provider, seen = FakeProvider(), []

    async def works(task, policy, ctx):
        async with ctx.sandbox() as sandbox:
            seen.append(sandbox.id)
            await sandbox.write_file("a.txt", b"1")
            await policy.chat(task.prompt)
        return Outcome()

    async def play():
        services = Services(provider=lambda name: provider)
        sampler = ScriptedSampler(stage.codec, ["yes"] * 9)
        runner = EpisodeRunner(
            SampledPlayers(sampler, stage.codec, seed=1),
            Scene(works),
            seed=1,
            limits=Limits(4, 60.0),
            services=services,
        )
        attempts = [Attempt(stage.task, member, 0, "train", "g") for member in range(3)]
        episodes = await runner.play_group(attempts, SAMPLING, stage.counters)
        await runner.close()
        await services.close()
        return episodes, await provider.list()

    episodes, alive = asyncio.run(play())
    assert [e.outcome.status for e in episodes] == ["finished"] * 3
    assert len(set(seen)) == 3
    assert list(alive) == []


def test_the_runner_closes_what_the_environment_holds(stage):
    class Holds:
        closed = 0

        async def run(self, task, policy, ctx):
            return Outcome()

        async def aclose(self):
            self.closed += 1

    environment = Holds()
    sampler = ScriptedSampler(stage.codec, [])
    runner = EpisodeRunner(
        SampledPlayers(sampler, stage.codec, seed=1), environment, seed=1, limits=Limits(1, 1.0)
    )
    asyncio.run(runner.close())
    assert environment.closed == 1


def test_the_budget_for_drift_holds_in_episodes(stage):
    async def forget(task, policy, ctx):
        await policy.chat([user("a")])
        await policy.chat([user("a"), assistant("never said"), user("b")])
        return Outcome()

    (allowed,) = stage.play(Scene(forget))
    assert (allowed.outcome.status, allowed.forks) == ("finished", 1)
    (refused,) = stage.play(Scene(forget), drift=DriftLimits(on_drift="refuse"))
    assert refused.outcome.status == "infrastructure_failed"
    assert "recorded tokens cannot be continued" in refused.outcome.reason


@pytest.mark.parametrize(
    "score",
    [
        Score(value=float("nan")),
        Score(value=1.0, turns=(1.0, float("inf"))),
        Score(value=1.0, agents={"critic": float("nan")}),
        Score(value=1e308),
    ],
)
def test_a_score_that_is_no_number_is_dropped_not_learned_from(stage, score):
    async def play(task, policy, ctx):
        await policy.chat(task.prompt)
        ctx.keep(score=score)
        return Outcome()

    (episode,) = stage.play(Scene(play))
    assert episode.outcome.status == "infrastructure_failed"
    assert "as a score" in episode.outcome.reason
    assert "at most 1e+18" in episode.outcome.fix
    assert episode.score is None


def test_a_failure_keeps_what_to_do_about_it(stage):
    async def play(task, policy, ctx):
        raise EnvironmentFailure("the server is gone", fix="start it")

    (episode,) = stage.play(Scene(play))
    assert (episode.outcome.reason, episode.outcome.fix) == ("the server is gone", "start it")
