"""From a plan to a loop that is ready to run: every part built once, in the order of need."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from training_gym import data
from training_gym.engines.local.compute import Compute
from training_gym.engines.local.core import Core, Origin
from training_gym.engines.local.drawing import RunSampler
from training_gym.engines.local.evaluations import Evaluations, Suite
from training_gym.engines.local.fixed_models import fixed_models
from training_gym.engines.local.groups import training_sampling
from training_gym.engines.local.guard import MemoryGuard
from training_gym.engines.local.imitation import ImitationLearner
from training_gym.engines.local.learning import PolicyLearner
from training_gym.engines.local.loop import Learner, Loop, read_progress
from training_gym.engines.local.meters import meter_of
from training_gym.engines.local.parallel.ranks import Rank
from training_gym.engines.local.parallel.spread import SpreadSampler
from training_gym.engines.local.parallel.team import Team
from training_gym.engines.local.preparation import prepare_torch, prompt_tokens, write_texts
from training_gym.engines.local.reports import Reports
from training_gym.engines.local.requests import Requests
from training_gym.engines.local.sampler import LocalSampler
from training_gym.engines.local.state import Progress
from training_gym.engines.local.translation import translation_for
from training_gym.engines.local.watched import Watched
from training_gym.environments.loading import load_environment
from training_gym.models import catalogue
from training_gym.models.base_weights import base_sha256
from training_gym.planning.phases import footprint
from training_gym.records.activity import Activity
from training_gym.records.checkpoints import Checkpoint, latest_valid
from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.rewards import RewardRunner
from training_gym.rollouts.attempts import Limits
from training_gym.rollouts.judging import EpisodeJudge
from training_gym.rollouts.runner import EpisodeRunner
from training_gym.rollouts.seats import SampledPlayers
from training_gym.rollouts.services import Services
from training_gym.spec.algorithms import GivenAnswers
from training_gym.spec.code import Code
from training_gym.spec.datasets import Dataset
from training_gym.spec.errors import DataError
from training_gym.spec.plan import Plan
from training_gym.spec.rewards import WeightedReward
from training_gym.spec.run import Eval
from training_gym.spec.tasks import Task
from training_gym.spec.text import TextCodec


class Assembly:
    """The parts of one run. Use `assemble`, which closes what needs closing."""

    def __init__(self, plan: Plan, run: RunDirectory, recorder: Recorder, requests: Requests):
        """Nothing is loaded yet."""
        self.plan = plan
        self.spec = plan.run
        self.recipe = plan.run.recipe
        self.run = run
        self.recorder = recorder
        self.requests = requests
        self.compute = Compute()
        self.reports = Reports(recorder, self.recipe)
        self._judge_of_training: EpisodeJudge | None = None
        self.activity = Activity(recorder)
        self._runners: dict[str, RewardRunner] = {}
        self._stack = contextlib.AsyncExitStack()

    async def loop(self) -> Loop:
        """Build everything and take up the newest checkpoint, if there is one."""
        prepare_torch(self.plan)
        checkpoint, problems = latest_valid(self.run)
        for problem in problems:
            self.recorder.event("checkpoint_unreadable", message=problem)
        source = await self.compute.run(self._model_folder)
        progress = Progress() if checkpoint is None else read_progress(checkpoint)
        await self._load(source, checkpoint, progress.policy_version)
        self.activity.watch(self.sampler, generate="generation", update_weights="sync")
        self.activity.watch(self.trainer, step="training", advance="training")
        learner = await self._learner(progress)
        suites = [await self._suite(evaluation) for evaluation in self.spec.evaluations]
        self.recorder.counters = progress.counters
        self.recorder.attempt_started(resumed_from=checkpoint)
        return Loop(
            self.recipe,
            progress,
            run=self.run,
            learner=learner,
            trainer=self.trainer,
            compute=self.compute,
            evaluations=Evaluations(suites, self.recorder),
            recorder=self.recorder,
            requests=self.requests,
            weights_kind="full" if self.recipe.adapter is None else "adapter",
            base_sha256=lambda: base_sha256(source) if self.recipe.adapter else None,
            failures=self._failures,
            start_cold=self.sampler.forget,
            saved=checkpoint,
            activity=self.activity,
            meter=self.meter,
        )

    async def close(self) -> None:
        """Stop workers and the compute thread."""
        await self._stack.aclose()
        self.compute.close()
        self.activity.close()

    def _model_folder(self) -> Path:
        return catalogue.resolve(self.spec.model, say=self.recorder.log)

    async def _load(self, source: Path, checkpoint: Checkpoint | None, version: int) -> None:
        """The weights this attempt starts from, in every process that trains."""
        team = Team(Origin(self.plan, source, checkpoint, version))
        self._stack.push_async_callback(self.compute.run, team.close)
        core = await self.compute.run(team.load)
        core.network.release()  # of what the comparison made; the guard counts it by itself
        self.meter = meter_of(core.network.device)
        guard = MemoryGuard(
            footprint(self.plan),
            self.meter,
            token_budget=self.plan.token_budget,
            say=self.recorder.event,
        )
        self.recorder.event(
            "model_loaded",
            folder=str(source),
            parity=core.parity,
            packs=core.network.packs,
            decodes_by=core.network.decoding.name,
        )
        self.codec: TextCodec = core.codec
        self._stack.push_async_callback(write_texts(self.run, self.codec, self.recorder.log))
        self.companions = core.companions
        self.trainer = await self.compute.run(team.trainer, core)
        slots = guard.sampling_slots(self.plan.slots, self.plan.max_sequence_tokens)
        self.sampler = await self._sampler(core, team.ranks, slots)
        if not team.ranks:  # to repeat an update, all trainers would have to
            self.trainer.guard = guard
            if isinstance(self.sampler, LocalSampler):
                core.retain(self.sampler, guard, slots)
        self._stack.push_async_callback(self.sampler.close)
        fixed = fixed_models(self.plan, self.sampler, core.network, self.compute)
        self._services = Services(fixed=fixed)
        self._stack.push_async_callback(self._services.close)

    async def _sampler(self, core: Core, ranks: Sequence[Rank], slots: int) -> RunSampler:
        if self.recipe.engine.sampler is not None:
            return await self.compute.run(core.vllm_sampler, self.compute, slots)
        own = core.sampler(self.compute, slots)
        own.on_shrunk = self.reports.fewer_slots
        return SpreadSampler(own, ranks) if ranks else own

    async def _learner(self, progress: Progress) -> Learner:
        dataset = self.spec.dataset
        assert dataset is not None
        side = "train" if dataset.eval_fraction > 0 else "all"
        stream = data.TaskStream(
            self._tasks(dataset, side, expected=self.run.manifest.data_sha256),
            self.recipe.seed,
            shuffle=dataset.shuffle,
        )
        if progress.tasks:
            stream.restore(progress.tasks)
        self.activity.watch(stream, take="data")
        algorithm = self.recipe.algorithm
        if isinstance(algorithm, GivenAnswers):
            return ImitationLearner(
                self.recipe,
                tasks=stream,
                codec=self.codec,
                sampler=self.sampler,
                trainer=self.trainer,
                compute=self.compute,
                max_sequence_tokens=self.plan.max_sequence_tokens,
            )
        judge = await self._judge(self.spec.reward or data.own_reward(dataset))
        judge.num_judged, judge.num_failed = progress.num_judged, progress.num_failed
        self._judge_of_training = judge
        return PolicyLearner(
            self.recipe,
            algorithm,
            tasks=stream,
            runner=self._runner(self.spec.environment),
            judge=judge,
            sampler=self.sampler,
            trainer=self.trainer,
            compute=self.compute,
            on_episode=self.reports.episode,
            on_stale=self.reports.stale,
            columns=self.recorder,
            meter=self.meter,
            translation=translation_for(
                self.spec, self.companions, self.codec, token_budget=self.plan.token_budget
            ),
        )

    async def _suite(self, evaluation: Eval) -> Suite:
        held_out = evaluation.dataset == self.spec.dataset
        tasks = self._tasks(evaluation.dataset, "eval" if held_out else "all")
        own = data.own_reward(evaluation.dataset)
        sampling = evaluation.sampling or training_sampling(self.recipe)
        if sampling.max_tokens is None:
            sampling = sampling.changed(max_tokens=self.recipe.max_response_tokens)
        return Suite(
            name=evaluation.name,
            tasks=tasks,
            runner=self._runner(evaluation.environment or self.spec.environment),
            judge=await self._judge(evaluation.reward or self.spec.reward or own),
            samples=evaluation.samples,
            sampling=sampling,
            every=evaluation.every,
        )

    def _tasks(
        self, dataset: Dataset, side: Any, *, expected: str | None = None
    ) -> tuple[Task, ...]:
        """Tasks whose prompts fit; those that do not are counted and reported.

        Raises `DataError` if their hash is another than `expected`.
        """
        found = data.load(dataset, seed=self.recipe.seed, side=side, root=self.run.source)
        if expected not in (None, found.sha256):
            raise DataError(
                f"the tasks to train on are not those of the launch: their hash is "
                f"{found.sha256[:12]}…, not {expected[:12]}…",
                fix="put the data back as it was, or start a new run with resume_from_checkpoint=…",
            )
        limit = min(
            self.recipe.max_prompt_tokens or self.plan.max_sequence_tokens,
            self.plan.max_sequence_tokens - 1,
        )
        kept, dropped = data.drop_long(found.tasks, prompt_tokens(self.codec), limit)
        self.recorder.event(
            "tasks_loaded",
            side=side,
            tasks=len(kept),
            too_long=dropped,
            sha256=found.sha256,
            report=found.report.changed(too_long=dropped).model_dump(),
        )
        return kept

    def _runner(self, environment: Code | None) -> EpisodeRunner:
        recipe = self.recipe
        runner = EpisodeRunner(
            SampledPlayers(self.sampler, self.codec, seed=recipe.seed, drift=recipe.drift),
            Watched(load_environment(environment), self.activity),
            seed=recipe.seed,
            limits=Limits(recipe.max_turns, recipe.episode_timeout_s, recipe.max_episode_tokens),
            presence=self.sampler.presence,
            services=self._services,
        )
        self._stack.push_async_callback(runner.close)
        return runner

    async def _judge(self, reward: WeightedReward | Code | None) -> EpisodeJudge:
        rewards = None if reward is None else await self._reward_runner(reward)
        return EpisodeJudge(rewards, self.reports.reward_failed)

    async def _reward_runner(self, reward: WeightedReward | Code) -> RewardRunner:
        """One pool of workers for each different reward."""
        key = reward.model_dump_json()
        if key not in self._runners:
            runner = RewardRunner(
                reward,
                timeout_s=self.recipe.reward_timeout_s,
                workers=self.recipe.reward_workers,
                import_timeout_s=self.recipe.reward_import_timeout_s,
                source_root=self.run.source,
            )
            self._runners[key] = await self._stack.enter_async_context(runner)
            self.activity.watch(runner, judge="reward")
        return self._runners[key]

    def _failures(self) -> tuple[int, int]:
        judge = self._judge_of_training
        return (0, 0) if judge is None else (judge.num_judged, judge.num_failed)


@contextlib.asynccontextmanager
async def assemble(
    plan: Plan, run: RunDirectory, recorder: Recorder, requests: Requests
) -> AsyncIterator[Loop]:
    """The loop of a plan; on leaving, everything it started is closed."""
    assembly = Assembly(plan, run, recorder, requests)
    try:
        yield await assembly.loop()
    finally:
        await assembly.close()
