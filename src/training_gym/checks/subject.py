"""What is checked, with what several checks need worked out once."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from training_gym import data
from training_gym.checks.template import read_template
from training_gym.data import TaskSet
from training_gym.data.loading import Side
from training_gym.spec.companions import companion_name, needs_reference
from training_gym.spec.datasets import Dataset
from training_gym.spec.engine import Engine
from training_gym.spec.errors import GymError
from training_gym.spec.plan import Architecture
from training_gym.spec.run import Eval, RunSpec
from training_gym.spec.tasks import Task
from training_gym.spec.text import TextCodec

MEASURED_PROMPTS = 2000
"""Prompts whose tokens are counted; the rest is bounded by its bytes."""

TEMPLATE_TOKENS = 512
"""Room for what a chat template adds, where it cannot be rendered here."""


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class Subject:
    """A definition about to be launched. Properties keep an error instead of raising it."""

    run: RunSpec
    source: Path
    """The source, unpacked as the job will have it; data files are found below it."""
    home: Path
    """Where runs will be recorded."""
    engine: Engine
    say: Callable[[str], None] = _silent
    """Receives a line where something takes long, such as fetching a model."""

    @cached_property
    def training(self) -> TaskSet | GymError:
        """The tasks to train on."""
        return self._loaded(self.run.dataset, "train")

    @cached_property
    def evaluations(self) -> dict[str, TaskSet | GymError]:
        """The tasks of each evaluation."""
        return {evaluation.name: self._evaluated(evaluation) for evaluation in self.run.evaluations}

    @cached_property
    def all_tasks(self) -> tuple[Task, ...]:
        """Every task that could be loaded, evaluations included."""
        sets = [self.training, *self.evaluations.values()]
        return tuple(
            task for found in sets if not isinstance(found, GymError) for task in found.tasks
        )

    @cached_property
    def model(self) -> Path | GymError:
        """The model's folder."""
        from training_gym.models.catalogue import resolve

        try:
            return resolve(self.run.model, say=self.say)
        except GymError as error:
            return error

    @cached_property
    def architecture(self) -> Architecture | GymError:
        """What the planner needs to know of the model."""
        from training_gym.models.architecture import read

        if isinstance(self.model, GymError):
            return self.model
        try:
            return read(self.model)
        except GymError as error:
            return error

    @cached_property
    def companion_parameters(self) -> int | GymError:
        """Parameters of the frozen model that is held beside the policy; 0: there is none."""
        from training_gym.models.architecture import read
        from training_gym.models.catalogue import resolve

        algorithm, named = self.run.recipe.algorithm, companion_name(self.run.recipe.algorithm)
        if named is not None:
            try:
                return read(resolve(named, say=self.say)).num_parameters
            except GymError as error:
                return error
        own_start = needs_reference(algorithm) and self.run.recipe.adapter is None
        if not own_start or isinstance(self.architecture, GymError):
            return 0
        return self.architecture.num_parameters

    @property
    def planned(self) -> Architecture:
        """The architecture with what is held beside it, once the checks found both readable."""
        assert isinstance(self.architecture, Architecture), "checks refuse what cannot be read"
        assert isinstance(self.companion_parameters, int), "checks refuse what cannot be read"
        return self.architecture.changed(companion_parameters=self.companion_parameters)

    @cached_property
    def codec(self) -> TextCodec | GymError | None:
        """The model's tokenizer; None where transformers is not installed."""
        if isinstance(self.model, GymError):
            return self.model
        if not _is_installed("transformers"):
            return None
        from training_gym.models.weights import load_codec

        try:
            return load_codec(self.model)
        except GymError as error:
            return error

    @cached_property
    def prompt_tokens(self) -> tuple[int, ...] | GymError | None:
        """Length of each of the first `MEASURED_PROMPTS` prompts; None where unknown here."""
        if self.codec is None or isinstance(self.codec, GymError):
            return self.codec
        try:
            return tuple(_measured(self.codec, task) for task in self.all_tasks[:MEASURED_PROMPTS])
        except GymError as error:
            return error

    @cached_property
    def longest_prompt_tokens(self) -> int | None:
        """No prompt has more tokens than this; None without tasks.

        A tokenizer that falls back to bytes makes no more tokens of a text than it has bytes.
        """
        measured = self.prompt_tokens if isinstance(self.prompt_tokens, tuple) else ()
        rest = self.all_tasks[len(measured) :]
        bounds = [len(task.prompt_text.encode()) + TEMPLATE_TOKENS for task in rest]
        return max([*measured, *bounds], default=None)

    @property
    def evaluated_episodes(self) -> int | None:
        """Episodes of the largest evaluation, 0 without any; None where one cannot be loaded."""
        counts = [0]
        for evaluation in self.run.evaluations:
            found = self.evaluations[evaluation.name]
            if isinstance(found, GymError):
                return None
            counts.append(len(found.tasks) * evaluation.samples)
        return max(counts)

    @property
    def data_sha256(self) -> str | None:
        """Hash of the tasks to train on."""
        return None if isinstance(self.training, GymError) else self.training.sha256

    @property
    def template_sha256(self) -> str | None:
        """Hash of the model's chat template, as its file has it; None: it has none."""
        text = None if isinstance(self.model, GymError) else read_template(self.model)
        return None if text is None else hashlib.sha256(text.encode()).hexdigest()

    def _evaluated(self, evaluation: Eval) -> TaskSet | GymError:
        held_out = evaluation.dataset == self.run.dataset
        return self._loaded(evaluation.dataset, "eval" if held_out else "all")

    def _loaded(self, dataset: Dataset | None, side: Side) -> TaskSet | GymError:
        assert dataset is not None, "a run has a dataset"
        try:
            return data.load(dataset, seed=self.run.recipe.seed, side=side, root=self.source)
        except GymError as error:
            return error


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:  # an import hook that keeps it out
        return False


def _measured(codec: TextCodec, task: Task) -> int:
    if isinstance(task.prompt, str):
        return len(codec.begin()) + len(codec.encode(task.prompt))
    return len(codec.encode(codec.render(task.prompt)))
