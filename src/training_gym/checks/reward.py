"""The reward, tried in its worker process on real tasks with good and with hostile outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from training_gym.checks.definition import is_supervised, needs_a_reward
from training_gym.checks.findings import error, warning
from training_gym.checks.outputs import outputs_for, played
from training_gym.checks.subject import Subject
from training_gym.data import own_reward
from training_gym.rewards import Judgement, RewardRunner
from training_gym.spec.bridge import run_sync
from training_gym.spec.code import Code
from training_gym.spec.episodes import Episode
from training_gym.spec.errors import GymError
from training_gym.spec.findings import Finding
from training_gym.spec.rewards import RewardSpec, WeightedReward
from training_gym.spec.run import Eval, RunSpec
from training_gym.spec.tasks import Task

TRIAL_TIMEOUT_S = 5.0
"""A reward that takes longer for a group is not tried further, unless it may not take so long."""

TRIED_TASKS = 2

SLOW_IMPORT = 0.25
"""Share of `reward_import_timeout_s`: on a busier machine the import may take several times as
long."""


@dataclass(frozen=True)
class Trial:
    """One judged output."""

    task: Task
    output: str
    """What was judged, in words."""
    judgement: Judgement


def exactly_one_reward(subject: Subject) -> Iterator[Finding]:
    """`reward.missing`, `reward.twice`: none judges, or more than one would."""
    sources = _sources(subject.run)
    unjudged = [
        evaluation.name
        for evaluation in subject.run.evaluations
        if not _judged(subject.run, evaluation)
    ]
    if not sources and needs_a_reward(subject) and subject.run.environment is None:
        yield error(
            "reward.missing",
            "nothing judges the episodes: neither reward, environment nor tasks bring a reward",
            "give reward=…",
        )
    elif unjudged:
        yield error(
            "reward.missing",
            f"nothing judges evaluation {unjudged[0]!r}",
            "give it, or the run, a reward=…",
        )
    if len(sources) > 1:
        yield error(
            "reward.twice",
            f"{len(sources)} rewards judge the episodes: {' and '.join(sources)}",
            "leave one out, or compose them: reward=weighted(…)",
        )


def rewards_judge_anything(subject: Subject) -> Iterator[Finding]:
    """Findings of every reward of the run, tried on the tasks it will judge."""
    run = subject.run
    if isinstance(subject.training, GymError):
        return
    seen: set[str] = set()
    judge = None if is_supervised(subject) else run.reward or own_reward(run.dataset)
    wanted: list[tuple[RewardSpec | None, Sequence[Task]]] = [(judge, subject.training.tasks)]
    for evaluation in run.evaluations:
        found = subject.evaluations[evaluation.name]
        if not isinstance(found, GymError):
            own = own_reward(evaluation.dataset)
            wanted.append((evaluation.reward or run.reward or own, found.tasks))
    for reward, tasks in wanted:
        if reward is None or not tasks or reward.model_dump_json() in seen:
            continue
        seen.add(reward.model_dump_json())
        yield from _tried(subject, reward, tasks)


def _tried(subject: Subject, reward: RewardSpec, tasks: Sequence[Task]) -> Iterator[Finding]:
    chosen = sorted(tasks[:200], key=lambda task: len(task.prompt_text))
    chosen = [chosen[0], chosen[-1]][: min(TRIED_TASKS, len(chosen))]
    try:
        trials, import_s = run_sync(_trials(subject, reward, chosen))
    except GymError as refused:
        yield error("reward.unusable", refused.message, refused.fix)
        return
    yield from _imported(reward_name(reward), import_s, subject.run.recipe.reward_import_timeout_s)
    findings = list(verdict(trials, reward_name(reward), subject.run.recipe.reward_timeout_s))
    if subject.run.environment is None:
        yield from findings
    else:  # What its episodes hold is known only once they were played.
        yield from (finding.changed(severity="warning") for finding in findings)


async def _trials(
    subject: Subject, reward: RewardSpec, tasks: Sequence[Task]
) -> tuple[list[Trial], float]:
    """Every output of every task, as a group each; ends early where a reward ends nothing.

    Beside them the seconds that its worker took to start and import it.
    """
    timeout_s = min(subject.run.recipe.reward_timeout_s, TRIAL_TIMEOUT_S)
    trials: list[Trial] = []
    async with RewardRunner(
        reward,
        timeout_s=timeout_s,
        workers=1,
        import_timeout_s=subject.run.recipe.reward_import_timeout_s,
        source_root=subject.source,
        say=lambda line: subject.say(f"{reward_name(reward)} prints: {line}"),
    ) as runner:
        for task in tasks:
            outputs = outputs_for(task)
            episodes = [played(task, text, n) for n, text in enumerate(outputs.values())]
            if not trials:  # One alone tells of a reward that always hangs or dies, soon.
                judged = await _judged_in_time(runner, episodes[:1])
                if judged[0].kind in ("died", "timeout"):
                    return [Trial(task, next(iter(outputs)), judged[0])], runner.import_s
            judged = await _judged_in_time(runner, episodes)
            trials += map(Trial, repeat(task), outputs, judged)
            if any(judgement.kind == "timeout" for judgement in judged):
                break
    return trials, runner.import_s


async def _judged_in_time(runner: RewardRunner, episodes: Sequence[Episode]) -> list[Judgement]:
    try:
        async with asyncio.timeout(TRIAL_TIMEOUT_S + 1):
            return await runner.judge(episodes)
    except TimeoutError:
        return [Judgement(None, None, "timeout")] * len(episodes)


def _what_to_do(failure: str) -> str:
    """The two mistakes of those who come from another tool have advice of their own."""
    lists = "(list), which is no reward" in failure
    if lists or ("TypeError" in failure and "positional argument" in failure):
        return (
            "let it take one finished episode (episode.completion, episode.answer) and return one "
            "number, or a list of episodes and a list with @group_reward"
        )
    return "let it return a score for whatever the model may write, or None if none applies"


def verdict(trials: Sequence[Trial], name: str, timeout_s: float) -> Iterator[Finding]:
    """`reward.raised`, `.invalid`, `.died`, `.timeout`, `.never_judges`, `.constant`."""
    for kind in ("raised", "invalid", "died"):
        bad = next((trial for trial in trials if trial.judgement.kind == kind), None)
        if bad is not None:
            yield error(
                f"reward.{kind}",
                f"{bad.judgement.failure}, when the model's answer was {bad.output}",
                _what_to_do(bad.judgement.failure or ""),
            )
    if any(trial.judgement.kind == "timeout" for trial in trials):
        yield _slow(name, timeout_s)
        return
    scores = [trial.judgement.score.value for trial in trials if trial.judgement.score is not None]
    if trials and all(trial.judgement.kind == "none" for trial in trials):
        yield warning(
            "reward.never_judges",
            f"reward {name!r} returned None for all of {len(trials)} outputs tried",
            "return a number where the episode can be judged",
        )
    elif len(scores) > 1 and len(set(scores)) == 1 and len(scores) == len(trials):
        yield warning(
            "reward.constant",
            f"reward {name!r} was {scores[0]:g} for all of {len(scores)} outputs tried, "
            "good and bad",
            "nothing is learned from equal rewards: check what it compares",
        )


def _imported(name: str, import_s: float, timeout_s: float) -> Iterator[Finding]:
    if import_s > SLOW_IMPORT * timeout_s:
        yield warning(
            "reward.slow_import",
            f"importing reward {name!r} took {import_s:.3g} s of "
            f"reward_import_timeout_s = {timeout_s:g}, and every worker does it",
            "move slow work out of the top level of the file, or raise reward_import_timeout_s",
        )


def _slow(name: str, timeout_s: float) -> Finding:
    if timeout_s <= TRIAL_TIMEOUT_S:
        return error(
            "reward.timeout",
            f"reward {name!r} took longer than reward_timeout_s = {timeout_s:g} on a trial",
            "make it faster, or raise reward_timeout_s",
        )
    return warning(
        "reward.slow",
        f"reward {name!r} took longer than {TRIAL_TIMEOUT_S:g} s on a trial and was broken off: "
        "nothing is known of it",
        "make it faster; raise reward_workers to judge several at once",
    )


def reward_name(reward: RewardSpec) -> str:
    """What people call it."""
    if isinstance(reward, WeightedReward):
        return " + ".join(part.name for part in reward.parts)
    return reward.name


def _sources(run: RunSpec) -> list[str]:
    """Who judges, in words; an explicit composition with the tasks' own scorer is one."""
    sources = [] if run.reward is None else [f"reward={reward_name(run.reward)}"]
    own = own_reward(run.dataset)
    if own is not None and own.ref not in _refs(run.reward):
        sources.append(f"the tasks' own {own.name}")
    if run.environment is not None and _judges(run.environment):
        sources.append(f"the environment {run.environment.name}")
    return sources


def _judged(run: RunSpec, evaluation: Eval) -> bool:
    rewards = (evaluation.reward, run.reward, own_reward(evaluation.dataset))
    environment = evaluation.environment or run.environment
    return environment is not None or any(reward is not None for reward in rewards)


def _refs(reward: RewardSpec | None) -> set[str]:
    if isinstance(reward, WeightedReward):
        return {part.reward.ref for part in reward.parts}
    return {reward.ref} if reward is not None else set()


def _judges(environment: Code) -> bool:
    """Whether an environment says that it always judges by itself (`judges = True`)."""
    try:
        return getattr(environment.load(), "judges", False) is True
    except GymError:
        return False
