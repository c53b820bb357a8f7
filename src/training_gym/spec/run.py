"""`RunSpec`: the whole definition of a run as one value."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from training_gym.spec.algorithms import GivenAnswers
from training_gym.spec.code import CodeRef
from training_gym.spec.compute import ComputeSpec, LocalTarget
from training_gym.spec.datasets import DatasetSpec
from training_gym.spec.health import Health
from training_gym.spec.recipe import RECIPES, RecipeSpec
from training_gym.spec.rewards import RewardSpec
from training_gym.spec.sampling import Sampling
from training_gym.spec.settings import Settings


class Eval(Settings):
    """An evaluation: tasks, how to judge them, how often."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """What it is called in metrics and pages."""
    dataset: DatasetSpec
    """Its tasks."""
    reward: RewardSpec | None = None
    """None: the reward of the training."""
    environment: CodeRef | None = None
    """None: the environment of the training."""
    samples: int = Field(1, ge=1)
    """Episodes per task."""
    sampling: Sampling | None = None
    """None: the sampling of the training."""
    every: int | None = Field(None, ge=1)
    """Batches between evaluations; None: before the first and after the last only."""


class RunSpec(Settings):
    """Model, tasks, reward, recipe, compute: all that defines a run."""

    model: str = Field(min_length=1)
    """Catalogue name, Hugging Face id, local folder or GGUF file."""
    dataset: DatasetSpec | None = None
    """Tasks: rows, a file, or a dataset value; None: the environment makes its own."""
    environment: CodeRef | None = None
    """None: single turn."""
    reward: RewardSpec | None = None
    """What judges a finished episode; None: the environment does, or answers are given."""
    recipe: RecipeSpec = Field(default_factory=lambda: RECIPES["grpo"])
    """How to train, or the name of an algorithm."""
    compute: ComputeSpec = Field(default_factory=LocalTarget)
    """Where the job runs, or the name of a platform."""
    evals: tuple[Eval, ...] = ()
    """What is measured before, between and after training."""
    eval_dataset: DatasetSpec | None = None
    """Short for one evaluation called `eval`."""
    resume_from_checkpoint: str | None = None
    """Checkpoint folder whose weights to start from, with a fresh optimizer."""
    secrets: tuple[str, ...] = ()
    """Names of environment variables the job needs; values never reach a file."""
    requirements: tuple[str, ...] = ()
    """Packages the user's code needs inside the job."""
    source_include: tuple[str, ...] = ()
    """Further files or folders that travel with the source, relative to the defining file."""
    name: str | None = None
    """For people; it becomes part of the run's id."""
    tags: tuple[str, ...] = ()
    """For people, and for filters."""
    health: Health = Field(default_factory=Health)
    """Thresholds of the health rules, what alarms set off, who is told."""

    @field_validator("model", mode="before")
    @classmethod
    def _model_is_text(cls, value: Any) -> Any:
        return str(value) if hasattr(value, "__fspath__") else value

    @field_validator("evals", mode="before")
    @classmethod
    def _evals_are_listed(cls, value: Any) -> Any:
        if isinstance(value, Eval):  # iterating over it would yield its fields
            raise ValueError("several are taken, so write [Eval(…)]")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> RunSpec:
        if self.dataset is None and self.environment is None:
            raise ValueError("a run needs dataset=… or an environment that makes its own tasks")
        if self.dataset is None:
            raise ValueError("a run needs dataset=…; rows may be empty prompts for an environment")
        names = [evaluation.name for evaluation in self.evaluations]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two evaluations are called {twice!r}")
        if isinstance(self.recipe.algorithm, GivenAnswers) and self.environment is not None:
            kind = self.recipe.algorithm.__class__.__name__
            raise ValueError(
                f"with given answers ({kind}) no episodes are played: leave environment out"
            )
        for hook in self.health.webhooks:
            if hook.url_secret is not None and hook.url_secret not in self.secrets:
                raise ValueError(f"url_secret {hook.url_secret!r} is not among secrets")
        return self

    @property
    def evaluations(self) -> tuple[Eval, ...]:
        """All evaluations, those given in short included."""
        listed = self.evals
        if self.eval_dataset is not None:
            listed = (*listed, Eval(name="eval", dataset=self.eval_dataset))
        elif self.dataset is not None and self.dataset.eval_fraction > 0:
            listed = (*listed, Eval(name="held_out", dataset=self.dataset))
        return listed
