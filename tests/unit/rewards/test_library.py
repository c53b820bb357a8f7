import pytest

from training_gym.rewards.library import (
    BoxedMath,
    ChoiceLetter,
    ExactMatch,
    JsonSchema,
    LengthShaping,
    NumericMatch,
    RegexMatch,
)
from training_gym.rewards.library.answers import last_boxed
from training_gym.rewards.library.numeric import last_number
from training_gym.spec.code import Code
from training_gym.spec.episodes import SAMPLED, Episode, Trajectory
from training_gym.spec.errors import RewardError, SpecError
from training_gym.spec.messages import assistant, user
from training_gym.spec.tasks import Task


def said(completion: str, answer=None, **metadata) -> Episode:
    task = Task(id="t", prompt=(user("q"),), answer=answer, split_key="k", metadata=metadata)
    return Episode(id="e", task=task, group="g", messages=(user("q"), assistant(completion)))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r"\boxed{1} then \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"}} \boxed{a}", "a"),
        (r"\fbox{a}", None),
        (r"\fboxed {a}", "a"),
        ("no box", None),
    ],
)
def test_the_last_complete_box_counts(text, wanted):
    assert last_boxed(text) == wanted


@pytest.mark.parametrize(
    ("answer", "given", "wanted"),
    [
        ("1/2", r"\frac{1}{2}", 1),
        ("0.5", r"\frac12", 1),
        (r"so it is \boxed{42}", "42", 1),
        ("working\n#### 1,000", "1000", 1),
        ("x^2+1", "1+x^2", 1),
        ("(1,2)", "(1, 2)", 1),
        (7, "7", 1),
        ("7", "8", 0),
        ("2^{9^{9}}", "2^{9^{9}}", 1),
        ("7", "", 0),
        ("7", "9^{9^{9^{9}}}", 0),
        ("7", "2^{99999999}", 0),
        ("7", "99999999!", 0),
        ("7", "^".join("2" * 60), 0),
        ("7", "(" * 100 + "7" + ")" * 100, 0),
        ("7", "7" * 5000, 0),
        ("7", "\x00", 0),
        ("7", "\ud800", 0),
    ],
)
def test_boxed_mathematics(answer, given, wanted):
    pytest.importorskip("math_verify")
    assert BoxedMath()(said(f"So \\boxed{{{given}}}.", answer)) == wanted


def test_mathematics_outside_a_box_scores_nothing():
    assert BoxedMath()(said("7", "7")) == 0


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("it is 42.", 42),
        ("-1,234.5 m", -1234.5),
        ("1,234,567", 1234567),
        ("x=−3", -3),
        ("3-5", 5),
        ("about $7.50", 7.5),
        ("3/4 of it", 0.75),
        (r"\frac{3}{4}", 0.75),
        (r"-\dfrac{1}{2}", -0.5),
        ("1/0", None),
        ("2.5e-1", 0.25),
        (".5", 0.5),
        ("none", None),
        ("9" * 1000, None),
    ],
)
def test_the_last_number(text, wanted):
    found = last_number(text)
    assert (found if wanted is None else float(found)) == wanted


def test_a_number_beyond_floats_is_still_exact():
    assert last_number("1e999") == 10**999
    assert last_number("1e9999") == 9999
    assert NumericMatch()(said("1e999", 7)) == 0


def test_numeric_tolerance_and_marker():
    assert NumericMatch()(said("the total is 1,000", "#### 1000")) == 1
    assert NumericMatch()(said("3.14", 3.14159)) == 0
    assert NumericMatch(tolerance=0.01)(said("3.14", 3.14159)) == 1
    assert NumericMatch(relative_tolerance=0.1)(said("109", 100)) == 1
    assert NumericMatch(after="Answer:")(said("Answer: 5 (I checked 7)", 7)) == 1
    assert NumericMatch(after="Answer:")(said("7 Answer: none", 7)) == 0
    with pytest.raises(RewardError, match="no number"):
        NumericMatch()(said("7", "seven"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("B", "B"),
        (" (b). ", "B"),
        ("**C**", "C"),
        ("The answer is (C).", "C"),
        ("answer: A, no: the Answer is: **D**", "D"),
        ("thinking about A\nB. because", "B"),
        ("So I choose (D)", "D"),
        (r"\boxed{\textbf{(B)}}", "B"),
        ("A cat sat there", None),
        ("the answer is a function", None),
        ("Z", None),
        ("", None),
    ],
)
def test_the_chosen_letter(text, wanted):
    assert ChoiceLetter().chosen(text) == wanted


def test_the_expected_letter_may_be_a_number():
    assert ChoiceLetter()(said("B", 1)) == 1
    assert ChoiceLetter()(said("B", "(b)")) == 1
    with pytest.raises(RewardError, match="none of ABCD"):
        ChoiceLetter(letters="ABCD")(said("B", "Paris"))


def test_exact_match():
    assert ExactMatch()(said(" the  Cat\n", "The cat")) == 1
    assert ExactMatch(ignore_case=False)(said("cat", "Cat")) == 0
    assert ExactMatch(ignore_punctuation=True)(said("cat!", "Cat")) == 1
    assert ExactMatch(after="####")(said("so #### cat", "cat")) == 1
    assert ExactMatch()(said("kitten", ["cat", "kitten"])) == 1
    with pytest.raises(RewardError, match="no answer"):
        ExactMatch()(said("cat"))


def test_regex_match():
    assert RegexMatch(pattern=r"^\d+$")(said("a\n12\nb")) == 1
    assert RegexMatch(pattern=r"\d+", whole=True)(said(" 12\n")) == 1
    assert RegexMatch(pattern=r"\d+", whole=True)(said("12 b")) == 0
    assert RegexMatch(pattern=r"is (\w+)", equals_answer=True)(said("is x is y", "y")) == 1
    assert RegexMatch(pattern="CAT", ignore_case=True)(said("cat")) == 1
    assert RegexMatch(pattern="a", longest=3)(said("abbb")) == 0
    with pytest.raises(SpecError, match="not a regular expression"):
        RegexMatch(pattern="(")


def test_json_schema():
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    score = JsonSchema(json_schema=schema)
    for text in ('{"a": 1}', 'Here:\n```json\n{"a": 1}\n```\nDone.', 'It is {"a": 1}, I think.'):
        assert score(said(text)) == 1
    for text in ('{"a": "1"}', "{}", "[1]", "a", "", '{"a": NaN}', '{"a": 1'):
        assert score(said(text)) == 0
    assert JsonSchema(json_schema=schema, only_json=True)(said('It is {"a": 1}')) == 0
    with pytest.raises(RewardError, match="not a schema"):
        JsonSchema(json_schema={"type": "objekt"})(said("{}"))


def test_length_shaping():
    def tokens(n: int) -> Episode:
        sampled = Trajectory(
            token_ids=(), flags=(SAMPLED,) * n, logprobs=(), versions=(), prompt_length=0
        )
        return said("").changed(trajectories=(sampled,))

    shape = LengthShaping(low=2, high=4, soft=3)
    assert [shape(tokens(n)) for n in range(9)] == [0.5, 0.75, 1, 1, 1, 0.75, 0.5, 0.25, 0]
    assert LengthShaping(unit="words", high=2)(said("one two")) == 1
    assert LengthShaping(unit="words", high=2)(said("one two three")) == 0
    with pytest.raises(SpecError, match="low=3 is above high=2"):
        LengthShaping(low=3, high=2)


def test_scorers_travel():
    code = Code.of(LengthShaping(high=4))
    assert Code.read(code.model_dump()).load() == LengthShaping(high=4)
