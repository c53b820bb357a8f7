import dataclasses
from pathlib import Path

import pytest
from tests.unit.checks.conftest import Make

from training_gym.checks import Subject, run_checks
from training_gym.checks.data import prompts_fit
from training_gym.spec.errors import ModelError
from training_gym.spec.findings import Finding
from training_gym.spec.messages import Message


class WordCodec:
    """A tokenizer of words whose template adds three tokens."""

    has_chat_template = True

    def begin(self) -> tuple[int, ...]:
        return (1,)

    def encode(self, text: str) -> list[int]:
        return [0] * len(text.split())

    def render(self, messages: tuple[Message, ...]) -> str:
        return " ".join(["a b c", *(message.text for message in messages)])


class Refusing(WordCodec):
    def render(self, messages: tuple[Message, ...]) -> str:
        raise ModelError("no system messages", fix="leave it out")


def with_codec(subject: Subject, codec: object) -> Subject:
    vars(subject)["codec"] = codec
    return subject


def found(subject: Subject) -> list[Finding]:
    return run_checks(subject, [prompts_fit])


def test_prompts_beyond_the_limit_are_counted(make: Make, folder: Path) -> None:
    (folder / "mixed.jsonl").write_text('{"prompt": "a b"}\n{"prompt": "a b c d"}\n')
    recipe = {"max_prompt_tokens": 5}
    [finding] = found(with_codec(make(dataset="mixed.jsonl", recipe=recipe), WordCodec()))
    assert (finding.code, finding.severity) == ("data.too_long", "warning")
    assert "1 of 2 prompts measured are longer than 5 tokens (the longest has 7)" in finding.message


def test_when_none_fits_it_is_an_error(make: Make) -> None:
    [finding] = found(with_codec(make(recipe={"max_prompt_tokens": 2}), WordCodec()))
    assert (finding.code, finding.severity) == ("data.too_long", "error")


def test_an_answer_longer_than_the_context_is_left_to_the_plan(make: Make) -> None:
    assert found(with_codec(make(recipe={"max_response_tokens": 300}), WordCodec())) == []


def test_without_a_limit_the_context_less_the_answer_counts(make: Make, folder: Path) -> None:
    (folder / "long.jsonl").write_text('{"prompt": "%s"}\n' % ("a " * 230))
    assert found(with_codec(make(recipe={"max_response_tokens": 16}), WordCodec())) == []
    long = make(dataset="long.jsonl", recipe={"max_response_tokens": 32})
    assert [finding.code for finding in found(with_codec(long, WordCodec()))] == ["data.too_long"]


def test_the_longest_prompt_is_measured_or_bounded_by_its_bytes(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "two.jsonl").write_text('{"prompt": "a b c d e f"}\n{"prompt": "ä"}\n')
    fields = {"dataset": {"kind": "file", "path": "two.jsonl", "shuffle": False}}
    assert with_codec(make(**fields), WordCodec()).longest_prompt_tokens == 9
    assert make(**fields).longest_prompt_tokens == len("a b c d e f") + 512
    monkeypatch.setattr("training_gym.checks.subject.MEASURED_PROMPTS", 1)
    assert with_codec(make(**fields), WordCodec()).longest_prompt_tokens == 2 + 512


def test_a_tokenizer_that_cannot_be_read_is_an_error(make: Make) -> None:
    broken = ModelError("no tokenizer.json", fix="save it")
    [finding] = found(with_codec(make(), broken))
    assert (finding.code, finding.severity) == ("model.tokenizer", "error")


def test_a_template_that_refuses_the_messages_is_an_error(make: Make) -> None:
    [finding] = found(with_codec(make(), Refusing()))
    assert (finding.code, finding.severity) == ("model.template_refuses", "error")
    assert "no system messages" in finding.message


def test_a_model_that_is_missing_is_not_reported_twice(make: Make) -> None:
    subject = dataclasses.replace(make(), run=make().run.changed(model="nothing"))
    assert found(subject) == []
