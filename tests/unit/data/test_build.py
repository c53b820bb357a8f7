import hashlib

import pytest

from training_gym.data import load
from training_gym.spec.datasets import RowsDataset
from training_gym.spec.errors import DataError
from training_gym.spec.messages import assistant, system, user
from training_gym.spec.tasks import Task


def load_rows(rows, **settings):
    return load(RowsDataset.of(rows, shuffle=False, **settings), seed=0, root=".")


def only_task(row, **settings):
    (task,) = load_rows([row], **settings).tasks
    return task


def refusal(row, **settings) -> str:
    with pytest.raises(DataError) as caught:
        load_rows([row], **settings)
    assert caught.value.fix
    return str(caught.value)


def test_text_becomes_messages_with_system_prompt_and_template():
    task = only_task(
        {"prompt": "dusk", "answer": "x", "season": "autumn"},
        system_prompt="Be brief.",
        template="Haiku on {input} in {season}, \\boxed{}, {{input}}",
    )
    assert task.prompt == (
        system("Be brief."),
        user("Haiku on dusk in autumn, \\boxed{}, {input}"),
    )
    assert task.answer == "x"
    assert task.metadata == {"season": "autumn"}


def test_raw_text_stays_text():
    assert only_task("Once upon", input_format="raw", template="{input} a").prompt == "Once upon a"
    assert "no place for a system_prompt" in refusal("a", input_format="raw", system_prompt="b")


def test_a_closing_assistant_message_is_the_answer_when_no_column_is():
    row = {"prompt": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    task = only_task(row, input_format="messages")
    assert (task.prompt, task.answer) == ((user("hi"),), "ho")
    assert task.target == assistant("ho")
    assert only_task(row, input_format="messages", output_column=None) == task
    assert "ends with the assistant's answer" in refusal(
        row | {"answer": "hu"}, input_format="messages"
    )


def test_messages_take_template_and_system_prompt():
    row = {"prompt": [{"role": "system", "content": "old"}, {"role": "user", "content": "hi"}]}
    task = only_task(row, input_format="messages", system_prompt="new", template="<{input}>")
    assert task.prompt == (system("new"), user("<hi>"))


def test_messages_as_tables_and_openai_hold_them():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    row = {
        "prompt": [
            {"role": "user", "content": "hi", "tool_calls": None},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "3", "tool_call_id": "1"},
        ]
    }
    prompt = only_task(row, input_format="messages").prompt
    assert prompt[1].tool_calls[0].arguments == '{"a": 1}'
    assert prompt[2].tool_call_id == "1"
    text = '[{"role": "user", "content": "hi"}]'
    assert only_task({"prompt": text}, input_format="messages").prompt == (user("hi"),)


@pytest.mark.parametrize(
    ("row", "settings", "wanted"),
    [
        ({"prompt": 3}, {}, "holds a int"),
        ({"prompt": [{"role": "user"}]}, {"input_format": "text"}, "input_format='messages'"),
        ({"prompt": "hi"}, {"input_format": "messages"}, "not a conversation in JSON"),
        ({"prompt": ["hi"]}, {"input_format": "messages"}, "message 1 is 'hi'"),
        ({"prompt": [{"role": "bot"}]}, {"input_format": "messages"}, "message 1: "),
        ({"prompt": "a"}, {"template": "{topic}: {input}"}, "no column 'topic' for the template"),
        ({"prompt": "a", "answer": "b"}, {"template": "{input} {answer}"}, "expected answer"),
        ({"prompt": "a"}, {"template": "none"}, "no place for the prompt"),
        ({"prompt": "a", "tests": {1}}, {}, "row 1 of the list: column 'tests' holds a value"),
        ({"prompt": "a", 3: "b"}, {}, "column called 3"),
        (3, {}, "row 1 of the list is a int, not a row"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(row, settings, wanted):
    assert wanted in refusal(row, **settings)


def test_rows_may_be_strings_dictionaries_and_tasks():
    ready = Task(id="mine", prompt="p", split_key="k", metadata={"a": [1]})
    tasks = load_rows(["one", {"prompt": "two"}, ready]).tasks
    assert [task.prompt_text for task in tasks] == ["one", "two", "p"]
    assert tasks[2] == ready
    assert "complete Task" in refusal(ready, system_prompt="x")


def test_ids_depend_on_content_only():
    first = only_task({"prompt": "a", "answer": "1", "level": 2})
    again = only_task({"level": 2, "answer": "1", "prompt": "a"})
    other = only_task({"prompt": "a", "answer": "1", "level": 3})
    assert first == again
    assert first.id != other.id
    assert first.split_key == other.split_key
    canonical = '{"answer":"1","metadata":{"level":2},"prompt":[{"content":"a","role":"user"}]}'
    assert first.id == hashlib.sha256(canonical.encode()).hexdigest()[:16]


def test_the_split_key_ignores_wording_around_the_prompt():
    keys = {
        only_task("a  b").split_key,
        only_task("a b ").split_key,
        only_task("a b", template="Now: {input}", system_prompt="s").split_key,
    }
    assert len(keys) == 1
    assert only_task({"prompt": "a", "repo": "x/y"}, split_column="repo").split_key == "x/y"
    assert only_task({"prompt": "a", "repo": 7}, split_column="repo").split_key == "7"


def test_duplicates_and_empty_prompts_are_counted():
    report = load_rows(["a", "a", " ", {"prompt": None}, {"prompt": "a", "answer": "1"}]).report
    assert (report.rows_read, report.duplicates, report.empty_prompts) == (5, 1, 2)
    assert report.without_answer == 1
    assert report.sentence() == "5 rows, 1 duplicates, 2 without a prompt"


def test_an_environment_may_have_rows_without_any_prompt():
    found = load_rows([{"prompt": "", "level": 1}, {"prompt": "", "level": 2}])
    assert [task.metadata["level"] for task in found.tasks] == [1, 2]


def test_two_tasks_with_one_id_are_refused():
    twins = [Task(id="x", prompt=text, split_key="k") for text in ("a", "b")]
    with pytest.raises(DataError, match="'x' of another task"):
        load_rows(twins)


PAIR = {"prompt": "hi", "chosen": "ho", "rejected": "hu", "source": "s"}


def test_pairs_are_read_by_their_usual_names():
    task = only_task(PAIR)
    assert (task.answer, task.rejected, task.metadata) == ("ho", "hu", {"source": "s"})
    assert (task.target, task.rejected_target) == (assistant("ho"), assistant("hu"))
    assert task.id != only_task(PAIR | {"rejected": "other"}).id


def test_pairs_may_be_called_otherwise():
    row = {"prompt": "hi", "good": "ho", "bad": "hu"}
    task = only_task(row, output_column="good", rejected_column="bad")
    assert (task.answer, task.rejected, task.metadata) == ("ho", "hu", {})
    assert "has no column 'worse'" in refusal(row, output_column="good", rejected_column="worse")
    assert only_task(PAIR, rejected_column=None).rejected is None


def test_answers_of_a_pair_may_be_conversations():
    asked, good, bad = ({"role": "user", "content": "hi"}, *(
        {"role": "assistant", "content": text} for text in ("ho", "hu")
    ))  # fmt: skip
    whole = {"prompt": "hi", "chosen": [asked, good], "rejected": [bad]}
    task = only_task(whole)
    assert (task.answer, task.rejected) == ("ho", "hu")
    implicit = {"chosen": [asked, good], "rejected": [asked, bad]}
    task = only_task(implicit, input_column="chosen", input_format="messages")
    assert (task.prompt, task.answer, task.rejected) == ((user("hi"),), "ho", "hu")
    assert "the rejected answer is no text" in refusal(PAIR | {"rejected": [asked]})


def test_a_column_of_rejected_answers_does_not_change_other_tasks():
    plain = {"prompt": "hi", "answer": "ho"}
    assert only_task(plain).rejected is None
    assert only_task(plain | {"rejected": None}).rejected is None
