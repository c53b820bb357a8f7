"""Harbor tasks run in real sandboxes: builds, solutions, verifiers, steps, faults."""

from __future__ import annotations

import asyncio
import sys

import pytest

from training_gym.data.harbor import read_task
from training_gym.environments.harbor import Terms, verify_task
from training_gym.environments.harbor.dockerfile import expand, read_dockerfile
from training_gym.environments.harbor.trial import combined
from training_gym.rewards.graders.harbor import VerifierResult, parse_rewards
from training_gym.sandboxes import registry
from training_gym.spec.errors import EnvironmentFailure

OFFLINE = Terms(base="host", network="none")

DOCKERFILE = """\
FROM python:3.12-slim
# a comment
ARG NAME=world
ENV GREETING="hello $NAME" OTHER=1
WORKDIR /app
COPY data/ /app/data/
COPY a.txt b.txt ./
COPY a.txt renamed.txt
RUN echo "$GREETING" > greeting.txt \\
    && cat a.txt >> greeting.txt
USER root
CMD ["sleep", "infinity"]
"""
TASK = {
    "instruction.md": "Write 42 to answer.txt",
    "environment/Dockerfile": DOCKERFILE,
    "environment/data/x.txt": "x",
    "environment/a.txt": "a",
    "environment/b.txt": "b",
    "task.toml": '[verifier.env]\nWANTED = "${NO_SUCH_NAME:-42}"\n[solution.env]\nVALUE = "42"\n',
    "solution/solve.sh": "#!/bin/bash\ncat data/x.txt renamed.txt b.txt\n"
    "[ $? = 0 ] && echo $VALUE > answer.txt\n",
    "tests/test.sh": '#!/bin/bash\ncd /app\ngrep -q "hello world" greeting.txt || exit 1\n'
    '[ "$(cat answer.txt)" = "$WANTED" ] && r=1 || r=0\n'
    "echo $r > /logs/verifier/reward.txt\n",
}
STEPS = {
    **TASK,
    "task.toml": 'multi_step_reward_strategy = "mean"\n'
    '[[steps]]\nname = "one"\nmin_reward = 0.5\n[[steps]]\nname = "two"\n',
    "steps/one/instruction.md": "Write 1",
    "steps/one/solution/solve.sh": "echo 1 > /app/one",
    "steps/one/workdir/setup.sh": "echo ready > ready.txt",
    "steps/one/tests/test.sh": "cd /app; [ -f one ] && [ -f ready.txt ] && r=1 || r=0\n"
    'echo "{\\"reward\\": $r, \\"extra\\": 0.5}" > /logs/verifier/reward.json\n'
    "echo 7 > /logs/verifier/reward.txt; touch /app/tests-were-here\n",
    "steps/two/instruction.md": "Write 2",
    "steps/two/solution/solve.sh": "[ ! -e /app/tests-were-here ] && echo 2 > /app/two",
    "steps/two/tests/test.sh": "cd /app; [ -f one ] && [ -f two ] && echo 1 || echo 0\n"
    "[ -f one ] && [ -f two ] && r=1 || r=0; echo $r > /logs/verifier/reward.json\n",
}
SEPARATE = {
    **TASK,
    "task.toml": 'artifacts = ["/app/answer.txt"]\n[verifier]\nenvironment_mode = "separate"\n',
    "solution/solve.sh": "echo 42 > answer.txt; echo no > undeclared.txt\n"
    "echo 1 > /logs/verifier/reward.txt; echo p > /logs/artifacts/published\n",
    "tests/test.sh": "cd /app; [ ! -e undeclared.txt ] && [ -e /logs/artifacts/published ] && "
    "[ $(cat answer.txt) = 42 ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n",
}


@pytest.fixture(scope="module")
def verify(tmp_path_factory):
    if sys.platform != "linux":
        pytest.skip("local sandboxes need Linux")
    runner = asyncio.Runner()
    provider = registry.find("local")

    def verified(files, terms=OFFLINE, **changes):
        root = tmp_path_factory.mktemp("task")
        for path, text in {**files, **changes}.items():
            if text is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
        return runner.run(verify_task(provider, read_task(root), terms))

    try:
        yield verified
        runner.run(provider.close())
    finally:
        runner.close()


def test_a_sound_task(verify):
    report = verify(TASK)
    assert (report.finding, report.reason) == ("sound", "solution 1, nothing 0")
    assert any("FROM python:3.12-slim" in note for note in report.notes)
    assert report.tier


def test_steps_share_a_world_but_not_their_tests(verify):
    report = verify(STEPS)
    assert report.finding == "sound", report
    assert report.solution.rewards == {"reward": 1.0, "extra": 0.25}
    assert report.solution.steps[0].verifier.rewards == {"reward": 1.0, "extra": 0.5}
    assert report.nothing.stopped_at == "one"
    assert len(report.nothing.steps) == 1


def test_a_separate_verifier_sees_declared_artifacts_only(verify):
    report = verify(SEPARATE)
    assert report.finding == "sound", report


@pytest.mark.parametrize("forged", ["echo 1 >", "echo 1 > /tmp/r; ln -s /tmp/r"])
def test_stale_rewards_are_removed_and_reported(verify, forged):
    files = {"solution/solve.sh": f"{forged} /logs/verifier/reward.txt", "tests/test.sh": "true"}
    report = verify({**TASK, **files})
    assert report.finding == "solution_fails"
    step = report.solution.steps[0].verifier
    assert (step.rewards, step.fault) == (None, "reward_missing")
    assert [sign.kind for sign in step.tampering] == ["verdict_file"]


@pytest.mark.parametrize(
    ("files", "finding", "said"),
    [
        ({"tests/test.sh": "echo 1 > /logs/verifier/reward.txt"}, "nothing_scores", "nothing"),
        ({"solution/solve.sh": "false"}, "solution_fails", "0"),
        ({"solution/solve.sh": None}, "no_solution", "solve.sh"),
        ({"tests/test.sh": "sleep 60", "task.toml": "[verifier]\ntimeout_sec = 0.5"},
         "solution_fails", "longer than 0.5 s"),
        ({"environment/Dockerfile": "FROM a\nFROM b\n"}, "not_run", "line 2"),
        ({"environment/Dockerfile": "FROM a\nRUN exit 3\n"}, "not_run", "exit code 3"),
        ({"environment/Dockerfile": "FROM a\nUSER me\n"}, "not_run", "USER me"),
        ({"environment/docker-compose.yaml": "services: {}"}, "not_run", "docker-compose"),
        ({"task.toml": "[environment]\ngpus = 1"}, "not_run", "gpus = 1"),
        ({"task.toml": '[agent]\nuser = "me"'}, "not_run", "agent.user"),
        ({"task.toml": '[verifier.env]\nA = "${NO_SUCH_NAME}"'}, "not_run", "NO_SUCH_NAME"),
        ({"task.toml": '[environment.healthcheck]\ncommand = "false"\ninterval_sec = 0.01'},
         "not_run", "healthcheck"),
    ],
)  # fmt: skip
def test_findings(verify, files, finding, said):
    report = verify({**TASK, **files})
    assert report.finding == finding, report
    assert said in report.reason


@pytest.mark.parametrize(
    ("name", "data", "rewards", "fault"),
    [
        ("reward.json", b'{"a": 1, "b": 0.5}', {"a": 1.0, "b": 0.5}, None),
        ("reward.json", b"0.25", {"reward": 0.25}, None),
        ("reward.json", b"true", {"reward": 1.0}, None),
        ("reward.json", b'{"a": "1"}', None, "reward_invalid"),
        ("reward.json", b"NaN", None, "reward_invalid"),
        ("reward.json", b"1e999", None, "reward_invalid"),
        ("reward.json", b"1" * 400, None, "reward_invalid"),
        ("reward.json", b"[1]", None, "reward_invalid"),
        ("reward.json", b"{", None, "reward_invalid"),
        ("reward.json", b"", None, "reward_empty"),
        ("reward.txt", b" 0.5\n", {"reward": 0.5}, None),
        ("reward.txt", b"inf", None, "reward_invalid"),
        ("reward.txt", b"one", None, "reward_invalid"),
        ("reward.txt", b"\xff", None, "reward_invalid"),
    ],
)
def test_reward_files(name, data, rewards, fault):
    assert parse_rewards(name, data)[:2] == (rewards, fault)


def test_strategies():
    results = [VerifierResult(rewards={"a": 1.0}), None, VerifierResult(rewards={"b": 0.5})]
    assert combined(results, "mean") == {"a": 0.5, "b": 0.25}
    assert combined(results, "final") == {"b": 0.5}
    assert combined([None], "mean") is None
    assert combined([VerifierResult(fault="reward_missing")], "final") is None


@pytest.mark.parametrize(
    "text",
    ["", "RUN x", "FROM a\nCOPY --from=b c d", "FROM a\nRUN --mount=type=cache x", "FROM a\nADD "
     "https://x y", "FROM a\nONBUILD RUN x", "FROM a\nRUN <<EOF\nx\nEOF", "FROM a\nWORKDIR"],
)  # fmt: skip
def test_dockerfiles_that_cannot_be_carried_out(text):
    with pytest.raises(EnvironmentFailure, match="Dockerfile"):
        read_dockerfile(text)


def test_variables():
    known = {"A": "x", "EMPTY": ""}
    assert expand(r"$A ${A}y ${B:-d} ${EMPTY:-e} ${A:+set} $B \$A", known) == "x xy d e set  $A"
