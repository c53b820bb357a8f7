"""Rewards that behave and rewards that do not, run as the engine runs them."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from training_gym.rewards import RewardRunner
from training_gym.spec.code import Code
from training_gym.spec.episodes import PROMPT, SAMPLED, STOP, Episode, Trajectory
from training_gym.spec.errors import RewardError
from training_gym.spec.messages import assistant, user
from training_gym.spec.rewards import WeightedReward, weighted
from training_gym.spec.tasks import Task

REWARDS = '''
import asyncio, ctypes, os, sys, time
from training_gym.spec.episodes import Score
from training_gym.spec.rewards import group_reward

def length(episode):
    print("printing harms nobody")
    sys.stdout.flush()
    return len(episode.completion)

def tokens(episode):
    assert episode.trajectories[0].token_ids == ()
    return episode.num_tokens

def told(episode):
    """Does what the completion says."""
    word, _, rest = episode.completion.partition(" ")
    if word == "return":
        return eval(rest)
    if word == "raise":
        return int(rest)
    if word == "sleep":
        time.sleep(float(rest))
    if word == "exit":
        os._exit(int(rest))
    if word == "quit":
        sys.exit("quitting")
    if word == "segfault":
        ctypes.string_at(0)
    if word == "fork" and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    if word == "fork":
        os.kill(os.getpid(), 9)
    if word == "copy":
        os.fork()
        return len(rest)
    if word == "detach":  # as a daemon does, with nothing left that tells where it came from
        listen, tell = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(tell, str(os.getpid()).encode())
                os.execve("/bin/sleep", ["sleep", "300"], {})
            os._exit(0)
        with open(f"{__file__}.pid", "wb") as file:
            file.write(os.read(listen, 20))
        if rest:
            time.sleep(60) if rest == "and hang" else os._exit(3)
    if word == "recurse":
        return told(episode)
    return 1.0

def pid(episode):
    return os.getpid()

@group_reward
def rank(episodes):
    return [sum(len(o.completion) < len(e.completion) for o in episodes) for e in episodes]

@group_reward
def short_list(episodes):
    return [1.0]

async def gentle(episode):
    await asyncio.sleep(float(episode.completion or 0))
    return {"slept": 1.0}

async def quits(episode):
    sys.exit(3)

async def copies_itself(episode):
    os.fork()
    return len(episode.completion)

async def stubborn(episode):
    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return 0

@group_reward
async def gentle_rank(episodes):
    await asyncio.sleep(0)
    return [float(e.member) for e in episodes]

class Longer:
    def __init__(self, than=3):
        self.than = than
    def __call__(self, episode):
        return len(episode.completion) > self.than
'''


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "rewards_of_mine.py").write_text(REWARDS)
    return tmp_path


def code(name: str) -> Code:
    return Code(ref=f"rewards_of_mine:{name}")


def group(*completions: str) -> list[Episode]:
    task = Task(id="t1", prompt=(user("Do it."),), split_key="k", answer="yes")
    columns = {"token_ids": (5, 6, 7), "logprobs": (0.0, -1.0, -2.0), "versions": (-1, 0, 0)}
    trajectory = Trajectory(flags=(PROMPT, SAMPLED, SAMPLED | STOP), prompt_length=1, **columns)
    return [
        Episode(
            id=f"e{member}",
            task=task,
            group="g",
            member=member,
            messages=(user("Do it."), assistant(text)),
            trajectories=(trajectory,),
        )
        for member, text in enumerate(completions)
    ]


def judge(source, reward, *completions, timeout_s=20.0, workers=1):
    async def main():
        async with RewardRunner(
            reward, timeout_s=timeout_s, workers=workers, source_root=source
        ) as runner:
            return await runner.judge(group(*completions))

    return asyncio.run(main())


def values(judgements):
    return [judgement.score and judgement.score.value for judgement in judgements]


def test_plain_rewards_and_what_they_see(source, capfd):
    found = judge(source, code("length"), "", "ab", "ünï\ud800", "x" * 3_000_000)
    assert values(found) == [0.0, 2.0, 4.0, 3_000_000.0]
    assert "printing harms nobody" in capfd.readouterr().err
    assert values(judge(source, code("tokens"), "a")) == [2.0]


def test_every_kind_of_return_value(source):
    told = [
        "return 2",
        "return True",
        "return {'a': 1, 'b': 0.5}",
        "return {'a': 1, 'reward': 0.25}",
        "return Score(value=3, components={'x': 1})",
        "return None",
        "return {'a': 1, 'b': None}",
        "return float('nan')",
        "return 'yes'",
        "return {}",
        "return {'a': 'yes'}",
        "return {1: 1.0}",
        "return [1.0]",
        "return Score(value=float('inf'))",
        "return 10 ** 400",
        "return gentle(episode)",
        "return object()",
        "return 1e308",
        "return {'a': 1e308, 'b': 1e308}",
        "return Score(value=1, turns=(-1e300,))",
    ]
    found = judge(source, code("told"), *told)
    assert values(found)[:5] == [2.0, 1.0, 1.5, 0.25, 3.0]
    assert found[3].score.components == {"a": 1.0}
    assert [judgement.kind for judgement in found] == ["ok"] * 5 + ["none"] * 2 + ["invalid"] * 13
    assert found[7].failure == (
        "reward 'told' returned nan, which is no reward on task t1 ('Do it.')"
    )
    assert "returned 'yes' (str), which is no reward" in found[8].failure
    assert "returned 'a' = 'yes' (str)" in found[10].failure
    assert "(coroutine)" in found[15].failure
    assert "returned 1e+308, which is larger than can be computed with" in found[17].failure


def test_an_exception_names_type_line_and_task(source):
    found, quit_, recursion = judge(source, code("told"), "raise x", "quit", "recurse")
    line = 1 + REWARDS.splitlines().index("        return int(rest)")
    assert found.kind == "raised"
    assert found.failure == (
        "reward 'told' raised ValueError: invalid literal for int() with base 10: 'x' "
        f"(rewards_of_mine.py, line {line}: return int(rest)) on task t1 ('Do it.')"
    )
    assert "raised SystemExit: quitting" in quit_.failure
    assert "raised RecursionError" in recursion.failure


def test_a_death_is_attributed_and_the_next_call_works(source):
    found = judge(source, code("told"), "exit 3", "fine", "segfault", "fork", "fine")
    assert [judgement.kind for judgement in found] == ["died", "ok", "died", "died", "ok"]
    assert "ended its process with exit code 3" in found[0].failure
    assert "ended its process by SIGSEGV" in found[2].failure
    # Seen at once, although a child of the worker still holds the connection.
    assert "by SIGKILL, perhaps for lack of memory" in found[3].failure


def test_a_reward_that_forks_gets_its_own_answers(source):
    asked = [f"copy {'x' * length}" for length in (5, 30, 0, 7, 1)]
    assert values(judge(source, code("told"), *asked)) == [5, 30, 0, 7, 1]


def test_a_copy_of_the_callers_process_ends(source, tmp_path):
    seen = tmp_path / "seen"
    script = f"""
import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]
from pathlib import Path
from test_runner import code, judge, values
found = values(judge(Path({str(source)!r}), code("copies_itself"), "x", "", "xyz"))
with open({str(seen)!r}, "a") as file:
    file.write(f"{{found}}\\n")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    assert seen.read_text() == "[1.0, 0.0, 3.0]\n"


def test_a_hanging_reward_is_killed_and_others_are_not_disturbed(source):
    async def main():
        async with RewardRunner(
            code("told"), timeout_s=2.0, workers=2, source_root=source
        ) as runner:
            slow = asyncio.create_task(runner.judge(group("sleep 60")))
            others = [await runner.judge(group("return 1")) for _ in range(3)]
            assert not slow.done()
            return await slow, others, await runner.judge(group("return 2"))

    slow, others, after = asyncio.run(main())
    assert slow[0].kind == "timeout"
    assert "took longer than 2 s and was killed" in slow[0].failure
    assert [values(other) for other in others] == [[1.0]] * 3
    assert values(after) == [2.0]


@pytest.mark.parametrize("padding", [0, 40_000, 5_000_000])
def test_what_lies_ahead_at_a_worker_is_not_lost_with_it(source, padding):
    """Requests that fit into a socket, that do not, and that are larger than any buffer."""
    fine = f"{' ' * padding}fine"
    said = ["return 1", "sleep 60", f"return {fine!r} and 3", "exit 3", "return 5", "sleep 60"]
    found = judge(source, code("told"), *said, f"return {fine!r} and 7", timeout_s=1.0)
    kinds = ["ok", "timeout", "ok", "died", "ok", "timeout", "ok"]
    assert [judgement.kind for judgement in found] == kinds
    assert [value for value in values(found) if value] == [1.0, 3.0, 5.0, 7.0]


def test_a_time_limit_begins_when_the_call_before_has_ended(source):
    found = judge(source, code("told"), *["sleep 0.4"] * 6, timeout_s=1.5)
    assert [judgement.kind for judgement in found] == ["ok"] * 6


def test_workers_run_side_by_side(source):
    pids = values(judge(source, code("pid"), *[""] * 8, workers=2))
    assert len(set(pids)) == 2


def test_group_rewards_see_the_group(source):
    assert values(judge(source, code("rank"), "aaa", "a", "aa")) == [2.0, 0.0, 1.0]
    found = judge(source, code("short_list"), "a", "b")
    assert {judgement.kind for judgement in found} == {"invalid"}
    assert "returned 1 rewards for 2 episodes" in found[1].failure


def test_async_rewards_run_in_the_callers_loop_with_a_timeout(source):
    found = judge(source, code("gentle"), "0", "60", "x", timeout_s=0.5)
    assert [judgement.kind for judgement in found] == ["ok", "timeout", "raised"]
    assert found[0].score.components == {"slept": 1.0}
    assert "rewards_of_mine.py" in found[2].failure
    (found,) = judge(source, code("stubborn"), "", timeout_s=0.2)
    assert found.kind == "timeout"
    assert values(judge(source, code("gentle_rank"), "", "")) == [0.0, 1.0]
    first, second = judge(source, code("quits"), "", "")
    assert first.kind == second.kind == "raised"
    assert "raised SystemExit: 3 (rewards_of_mine.py" in first.failure


def test_a_composition_mixes_all_kinds(source):
    reward = weighted(long=(code("length"), 0.5), rank=code("rank"), slept=(code("gentle"), 2.0))
    found = judge(source, reward, "0", "0.0")
    assert values(found) == [0.5 + 0 + 2, 1.5 + 1 + 2]
    assert found[1].score.components == {
        "long": 3.0,
        "rank": 1.0,
        "slept": 1.0,
        "slept.slept": 1.0,
    }


def test_a_composition_too_large_to_be_computed_with_is_no_reward(source):
    reward = weighted(up=(code("told"), 1e308), down=(code("told"), -1e308))
    found = judge(source, reward, "return 7", "return 0")
    assert [judgement.kind for judgement in found] == ["invalid", "ok"]


def test_a_failing_part_outranks_one_that_cannot_judge(source):
    twice = WeightedReward.read(
        {
            "parts": [
                {"name": "a", "reward": {"ref": "rewards_of_mine:told"}},
                {"name": "b", "reward": {"ref": "rewards_of_mine:length"}},
            ]
        }
    )
    found = judge(source, twice, "return None", "raise x", "return 1")
    assert [judgement.kind for judgement in found] == ["none", "raised", "ok"]
    assert found[1].failure.startswith("reward 'a' raised ValueError")


def test_classes_and_instances_are_rewards(source):
    assert values(judge(source, code("Longer"), "abcd", "a")) == [1.0, 0.0]
    instance = Code(ref="rewards_of_mine:Longer", kwargs={"than": 10})
    assert values(judge(source, instance, "abcd")) == [0.0]


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("def f(:\n", "f", "SyntaxError"),
        ("import nothing_of_that_name\n", "f", "nothing_of_that_name"),
        ("f = 3\n", "f", "is a int, which cannot be called"),
        ("def f(e): pass\n", "g", "has no 'g'"),
        ("raise SystemExit('no')\n", "f", "SystemExit: no (broken.py, line 1"),
        ("import os\nos._exit(7)\n", "f", "exit code 7"),
    ],
)
def test_a_reward_that_cannot_be_loaded_is_a_two_line_error(tmp_path, text, name, wanted):
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(RewardError) as caught:
        judge(tmp_path, Code(ref=f"broken:{name}"), "a")
    assert wanted in caught.value.message
    assert len(str(caught.value).splitlines()) == 2


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 20
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_alive(pid)


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@linux
def test_close_leaves_no_process_thread_or_descriptor(source):
    before = set(os.listdir("/proc/self/fd"))
    pids = [int(value) for value in values(judge(source, code("pid"), *[""] * 6, workers=2))]
    assert not any(map(_is_alive, pids))
    assert not any(thread.name.startswith("rewards") for thread in threading.enumerate())
    assert set(os.listdir("/proc/self/fd")) == before


@linux
def test_a_cancelled_judgement_frees_its_worker(source):
    async def main():
        async with RewardRunner(
            code("told"), timeout_s=60, workers=1, source_root=source
        ) as runner:
            task = asyncio.create_task(runner.judge(group("sleep 50", "sleep 50")))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await runner.judge(group("return 1"))

    assert values(asyncio.run(main())) == [1.0]


def _pid_of_a_worker_whose_parent_is_killed(source, first, then):
    program = f"""
import asyncio, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from training_gym.rewards import RewardRunner
from training_gym.spec.code import Code
from test_runner import group, values

async def main():
    runner = RewardRunner(
        Code(ref="rewards_of_mine:told"), timeout_s=60, workers=1, source_root={str(source)!r}
    )
    await runner.__aenter__()
    found = values(await runner.judge(group("return os.getpid()", {first!r})))
    print(int(found[0]), flush=True)
    {then}
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return int(child.stdout)


@linux
@pytest.mark.parametrize("word", ["idle", "busy"])
def test_workers_end_with_their_parent(source, word):
    busy = "asyncio.ensure_future(runner.judge(group('sleep 50'))); await asyncio.sleep(0.2)"
    then = busy if word == "busy" else "pass"
    _wait_until_dead(_pid_of_a_worker_whose_parent_is_killed(source, "return 1", then))


@linux
@pytest.mark.parametrize(
    ("told", "kind"), [("detach", "ok"), ("detach and hang", "timeout"), ("detach and die", "died")]
)
def test_what_has_left_a_workers_process_group_ends_with_it(source, told, kind):
    async def main():
        async with RewardRunner(
            code("told"),
            timeout_s=2.0 if kind == "timeout" else 60.0,
            workers=1,
            source_root=source,
        ) as runner:
            (found,) = await runner.judge(group(told))
            pid = int((source / "rewards_of_mine.py.pid").read_text())
            return found.kind, pid, _is_alive(pid)

    found, pid, lived_on = asyncio.run(main())
    assert (found, lived_on) == (kind, kind == "ok")  # a server, say, that the next call asks again
    assert not _is_alive(pid)


@linux
def test_what_has_left_a_workers_process_group_ends_with_the_workers_parent(source):
    _wait_until_dead(_pid_of_a_worker_whose_parent_is_killed(source, "detach", "pass"))
    _wait_until_dead(int((source / "rewards_of_mine.py.pid").read_text()))


def test_a_worker_starts_without_anything_heavy(source):
    (source / "light.py").write_text(
        "import sys\n"
        "heavy = {'torch', 'transformers', 'numpy', 'datasets', 'asyncio'} & set(sys.modules)\n"
        "def f(episode):\n    assert not heavy, heavy\n    return 1\n"
    )
    assert values(judge(source, Code(ref="light:f"), "a")) == [1.0]


def test_the_callers_file_knows_that_it_runs_inside_a_job(source, monkeypatch):
    monkeypatch.delenv("TRAINING_GYM_INSIDE_JOB", raising=False)
    (source / "script.py").write_text(
        "from training_gym.spec.code import inside_job\n"
        "assert inside_job()\n"
        "def f(episode):\n    return 1\n"
    )
    assert values(judge(source, Code(ref="script:f"), "a")) == [1.0]


def test_a_loop_in_another_thread_works_too(source):
    found = []
    thread = threading.Thread(target=lambda: found.extend(judge(source, code("length"), "ab")))
    thread.start()
    thread.join()
    assert values(found) == [2.0]
