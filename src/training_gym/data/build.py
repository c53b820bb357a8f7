"""Rows into tasks: which column is what, the three input formats, system prompt and template."""

from __future__ import annotations

import json
from typing import Any

from pydantic import JsonValue

from training_gym.data.conversations import given_answer, read_conversation
from training_gym.data.rows import TASK_COLUMN, Candidate, Row
from training_gym.data.template import Template
from training_gym.data.values import NotJsonError, json_value
from training_gym.spec.datasets import FileDataset, HuggingFaceDataset, RowsDataset
from training_gym.spec.errors import DataError, SpecError, did_you_mean
from training_gym.spec.messages import Message, system, user
from training_gym.spec.tasks import Task, content_id

RowDataset = FileDataset | HuggingFaceDataset | RowsDataset
_DEFAULT_OUTPUT = FileDataset.model_fields["output_column"].default
_DEFAULT_REJECTED = FileDataset.model_fields["rejected_column"].default

CHOSEN_COLUMN = "chosen"
"""What data sets of preferences call the better answer."""


class TaskBuilder:
    """Turns the rows of one dataset into tasks."""

    def __init__(self, dataset: RowDataset) -> None:
        """Read the settings; raises `DataError` for two that exclude each other."""
        if dataset.input_format == "raw" and dataset.system_prompt is not None:
            raise DataError(
                "input_format='raw' has no place for a system_prompt",
                fix="put it into template, or use input_format='text'",
            )
        self._dataset = dataset
        self._template = Template(dataset.template)

    def build(self, row: Row) -> Candidate:
        """The row's task; raises `DataError` that names the row."""
        if set(row.columns) == {TASK_COLUMN}:
            return Candidate(self._ready_task(row), row.where)
        dataset = self._dataset
        given = self._column(row, "input_column", dataset.input_column)
        rejected_column = self._rejected_column(row)
        output_column = self._output_column(row, paired=rejected_column is not None)
        answer = None if output_column is None else self._json(row, output_column)
        rejected = None if rejected_column is None else self._json(row, rejected_column)
        prompt: str | tuple[Message, ...]
        identity: JsonValue
        if dataset.input_format == "messages":
            conversation = read_conversation(given, row.where)
            messages, last = _split_target(conversation, output_column, row.where)
            answer = answer if last is None else last
            identity = [
                message.model_dump(mode="json", exclude_defaults=True) for message in messages
            ]
            prompt = self._wrapped(messages, row)
            is_empty = not any(message.text.strip() for message in messages)
        else:
            text = self._text(given, row)
            identity = " ".join(text.split())
            prompt = self._around(text, row)
            is_empty = not identity
        if rejected is not None:
            answer = given_answer(answer, "chosen", row.where)
            rejected = given_answer(rejected, "rejected", row.where)
        metadata, left_out = self._metadata(row, output_column, rejected_column)
        split_key = self._split_key(row, identity)
        task = _task(prompt, answer, rejected, metadata, split_key, row.where)
        return Candidate(task, row.where, is_empty, left_out)

    def _column(self, row: Row, setting: str, name: str) -> Any:
        if name not in row.columns:
            raise DataError(
                f"{row.where} has no column {name!r}",
                fix=f"set {setting}; {did_you_mean(name, row.columns)}",
            )
        return row.columns[name]

    def _json(self, row: Row, name: str) -> JsonValue:
        try:
            return json_value(row.columns[name])
        except NotJsonError as error:
            raise DataError(
                f"{row.where}: column {name!r} holds {error}",
                fix="store the expected answer as text, a number or JSON",
            ) from None

    def _output_column(self, row: Row, *, paired: bool) -> str | None:
        """The answer's column, or None; a dataset without the default one has no answers."""
        name = self._dataset.output_column
        if name == _DEFAULT_OUTPUT and name not in row.columns:
            paired = paired and self._dataset.input_column != CHOSEN_COLUMN
            return CHOSEN_COLUMN if paired and CHOSEN_COLUMN in row.columns else None
        if name is None:
            return None
        self._column(row, "output_column", name)
        return name

    def _rejected_column(self, row: Row) -> str | None:
        """The column of the answer to avoid, or None; only one that was named has to be there."""
        name = self._dataset.rejected_column
        if name is None or (name == _DEFAULT_REJECTED and name not in row.columns):
            return None
        self._column(row, "rejected_column", name)
        return name

    def _text(self, given: Any, row: Row) -> str:
        if given is None:
            return ""
        if isinstance(given, str):
            return given
        fix = "set input_format='messages'" if isinstance(given, list) else "store it as text"
        raise DataError(
            f"{row.where}: column {self._dataset.input_column!r} holds a "
            f"{type(given).__name__}, and input_format={self._dataset.input_format!r} wants text",
            fix=fix,
        )

    def _around(self, text: str, row: Row) -> str | tuple[Message, ...]:
        filled = self._template.fill(text, row, self._dataset.output_column)
        if self._dataset.input_format == "raw":
            return filled
        before = self._dataset.system_prompt
        return (user(filled),) if before is None else (system(before), user(filled))

    def _wrapped(self, messages: tuple[Message, ...], row: Row) -> tuple[Message, ...]:
        """System prompt and template put on a conversation; the template on its last user turn."""
        if not self._template.is_plain:
            last = max(
                (i for i, message in enumerate(messages) if message.role == "user"), default=None
            )
            if last is None or not isinstance(messages[last].content, str):
                raise DataError(
                    f"{row.where} has no user message of plain text for the template",
                    fix="leave template out",
                )
            filled = self._template.fill(messages[last].text, row, self._dataset.output_column)
            changed = messages[last].changed(content=filled)
            messages = (*messages[:last], changed, *messages[last + 1 :])
        if self._dataset.system_prompt is None:
            return messages
        kept = messages[1:] if messages and messages[0].role == "system" else messages
        return (system(self._dataset.system_prompt), *kept)

    def _metadata(
        self, row: Row, *taken: str | None
    ) -> tuple[dict[str, JsonValue], tuple[str, ...]]:
        kept: dict[str, JsonValue] = {}
        left_out = []
        for name, value in row.columns.items():
            if name in (self._dataset.input_column, *taken):
                continue
            try:
                kept[name] = json_value(value)
            except NotJsonError:
                left_out.append(name)
        return kept, tuple(left_out)

    def _split_key(self, row: Row, identity: JsonValue) -> str:
        """The split column's value; without one, the prompt before template and system prompt."""
        if self._dataset.split_column is not None:
            value = self._column(row, "split_column", self._dataset.split_column)
            if value is not None:
                return value if isinstance(value, str) else json.dumps(value, default=str)
        return content_id(identity)

    def _ready_task(self, row: Row) -> Task:
        fields = type(self._dataset).model_fields
        for name in ("system_prompt", "template"):
            if getattr(self._dataset, name) != fields[name].default:
                raise DataError(
                    f"{row.where} is a complete Task, to which {name} cannot be applied",
                    fix=f"leave {name} out, or give the row as a dictionary",
                )
        try:
            return Task.read(row.columns[TASK_COLUMN])
        except SpecError as error:
            raise DataError(f"{row.where}: {error.message}", fix=error.fix) from None


def _split_target(
    messages: tuple[Message, ...], output_column: str | None, where: str
) -> tuple[tuple[Message, ...], str | None]:
    """Prompt and, where no column has it, the answer: a closing assistant message."""
    if not messages or messages[-1].role != "assistant":
        return messages, None
    last = messages[-1]
    if output_column is not None:
        raise DataError(
            f"{where}: the conversation ends with the assistant's answer, and {output_column!r} "
            f"holds another",
            fix="set output_column=None to make the last message the answer",
        )
    if last.tool_calls:
        raise DataError(
            f"{where}: the conversation ends with a tool call, which is no answer text",
            fix="end the conversation with a user, tool or plain assistant message",
        )
    return messages[:-1], last.text


def _task(
    prompt: str | tuple[Message, ...],
    answer: JsonValue,
    rejected: JsonValue,
    metadata: dict[str, JsonValue],
    split_key: str,
    where: str,
) -> Task:
    shown: JsonValue = (
        prompt
        if isinstance(prompt, str)
        else [message.model_dump(mode="json", exclude_defaults=True) for message in prompt]
    )
    content: dict[str, JsonValue] = {"prompt": shown, "answer": answer, "metadata": metadata}
    if rejected is not None:
        content["rejected"] = rejected
    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8")
        split_key.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            f"{where} holds half of a surrogate pair, which is not text",
            fix="write characters beyond U+FFFF as themselves or as a whole pair",
        ) from None
    return Task(
        id=content_id(content),
        prompt=prompt,
        answer=answer,
        rejected=rejected,
        metadata=metadata,
        split_key=split_key,
    )
