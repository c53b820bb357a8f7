"""What others build on does not change unnoticed: names, parameters, defaults."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import training_gym
from training_gym import TrainConfig, launch, planning
from training_gym.checks import Subject, raise_errors, run_checks
from training_gym.launch import Run

DEFINITION = (
    "model, dataset, environment, reward, recipe, compute, evals, eval_dataset, "
    "resume_from_checkpoint, secrets, requirements, source_include, name, tags, health"
)
METHODS: dict[str, Callable[..., Any]] = {
    "(self) -> 'Run'": TrainConfig.launch,
    "(self, *, progress: 'Progress | None' = None) -> 'Run'": TrainConfig.train,
    "(self, timeout_s: 'float | None' = None) -> 'Result'": Run.wait,
    "(self, name: 'str | None' = None) -> 'list[dict[str, Any]]'": Run.metrics,
    "(self, stream: 'str | None' = None, limit: 'int | None' = None) -> 'list[Episode]'": (
        Run.episodes
    ),
    "(self) -> 'list[Checkpoint]'": Run.checkpoints,
    "(self, now: 'bool' = False) -> 'None'": Run.stop,
    "(self) -> 'None'": Run.pause,
    "(self) -> 'Assessment'": Run.health,
    "(self, *, say: 'Callable[[str], None]' = <function to_stderr>) -> 'Self'": Run.resume,
    "(self, cursor: 'str' = '') -> 'LogChunk'": Run.logs,
    "(prefix: 'str') -> 'Run'": Run.from_id,
    "() -> 'list[Run]'": Run.all,
    "(where: 'str') -> 'TrainConfig'": launch.load_definition,
    "(config: 'TrainConfig', sets: 'Iterable[str]') -> 'TrainConfig'": launch.apply_sets,
    "(config: 'TrainConfig', *, say: 'Callable[[str], None]' = <function to_stderr>)"
    " -> 'Prepared'": launch.prepare,
    "(prepared: 'Prepared') -> 'Run'": launch.submit,
    "(run: 'RunSpec', architecture: 'Architecture', machine: 'Machine', "
    "origins: 'Mapping[str, Origin]', *, longest_prompt_tokens: 'int | None' = None, "
    "evaluated_episodes: 'int | None' = None) -> 'Plan'": planning.make_plan,
    "(findings: 'Iterable[Finding]') -> 'None'": raise_errors,
}


@pytest.mark.parametrize(("signature", "function"), METHODS.items())
def test_signatures_are_what_they_were(signature: str, function: Callable[..., Any]) -> None:
    shown = str(inspect.signature(function))
    assert shown.replace(f" at {id(launch.to_stderr):#x}", "") == signature


def test_a_definition_takes_exactly_the_designs_arguments_by_name() -> None:
    parameters = inspect.signature(TrainConfig).parameters.values()
    assert ", ".join(parameter.name for parameter in parameters) == DEFINITION
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    assert required == ["model"]


def test_a_run_offers_exactly_this() -> None:
    offered = {name for name in vars(Run) if not name.startswith("_")}
    assert offered == {
        "all", "checkpoints", "episodes", "failure", "fork", "from_id", "health", "inert",
        "is_paused", "logs", "metrics", "pause", "plan", "result", "resume", "status", "stop",
        "wait",
    }  # fmt: skip
    assert {"id", "path", "is_inert"} <= vars(Run("some-id")).keys()


def test_checks_take_a_subject() -> None:
    assert list(inspect.signature(run_checks).parameters) == ["subject", "checks"]
    assert list(inspect.signature(Subject).parameters) == ["run", "source", "home", "engine", "say"]


@pytest.mark.parametrize("name", sorted(training_gym.__all__))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(training_gym, name) is not None


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Trainer'"):
        training_gym.Trainer  # noqa: B018


def test_every_definition_tells_its_arguments() -> None:
    """What `help` and notebooks show: validators are built late, signatures must not be."""
    for name in training_gym.__all__:
        value = getattr(training_gym, name)
        if isinstance(value, type) and hasattr(value, "model_fields") and value.model_fields:
            assert set(inspect.signature(value).parameters) == set(value.model_fields), name
