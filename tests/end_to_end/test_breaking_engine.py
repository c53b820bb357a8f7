"""What goes wrong while the engine trains: told, counted, and never scored zero."""

import shutil

import pytest

from training_gym.models.weights.loading import load_model
from training_gym.records.checkpoints import latest_valid
from training_gym.records.readers import read_episodes, read_stream

ONE_FAILURE_OF_EACH_KIND = """
    batch = episode.counters.batch
    if IN_JOB and episode.member == 0 and batch == 1:
        raise KeyError("lost")
    if IN_JOB and episode.member == 0 and batch == 2:
        time.sleep(600)
    if IN_JOB and episode.member == 0 and batch == 4:
        return math.nan
    if IN_JOB and episode.member == 0 and batch == 5:
        return "good"
    return varied(episode)
"""


def events(run, kind):
    return [event for event in read_stream(run, "events") if event["kind"] == kind]


def values(run, name):
    return [record["values"].get(name) for record in read_stream(run, "metrics")]


def test_a_reward_that_fails_now_and_then_costs_episodes_and_never_counts_as_zero(define, play):
    sets = ("num_steps=6", "prompts_per_batch=1", "group_size=8", "reward_timeout_s=0.5")
    played = play(define(reward=ONE_FAILURE_OF_EACH_KIND), *(f"recipe.{given}" for given in sets))
    assert played.code == 0, played.error
    episodes = read_episodes(played.run, stream="train")
    assert len(episodes) == 48
    unjudged = [
        (episode.counters.batch, episode.member) for episode in episodes if not episode.score
    ]
    assert unjudged == [(1, 0), (2, 0), (4, 0), (5, 0)]
    assert min(episode.score.value for episode in episodes if episode.score) >= 0.5
    assert values(played.run, "episodes_dropped") == [0, 1, 1, 0, 1, 1]
    assert min(values(played.run, "reward_min")) >= 0.5
    told = {event["failure"]: event["message"] for event in events(played.run, "reward_failed")}
    assert set(told) == {"raised", "timeout", "invalid"}
    assert "KeyError" in told["raised"]
    assert "was killed" in told["timeout"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise KeyError('lost')", "KeyError"),
        ("time.sleep(600)", "took longer than 0.5 s and was killed"),
        ("return math.nan", "nan"),
        ("return 'good'", "'good'"),
    ],
)
def test_a_reward_that_always_fails_ends_the_run(define, play, body, words):
    reward = f"if IN_JOB: {body}\n    return varied(episode)"
    sets = ("prompts_per_batch=1", "group_size=3", "reward_timeout_s=0.5")
    played = play(define(reward=reward), *(f"recipe.{given}" for given in sets))
    assert played.code == 5
    assert played.error["type"] == "RewardError"
    assert words in played.error["message"]
    assert "the reward failed on 3 of 3 episodes" in played.error["message"]
    assert "return None" in played.error["fix"]
    assert [episode.score for episode in read_episodes(played.run)] == []


def test_equal_rewards_change_nothing_and_the_run_says_so(define, play, tiny):
    played = play(define(reward="return 1.0", dataset="ROWS[:1]"))
    assert played.code == 0, played.error
    assert played.summary["optimizer_steps"] == 0
    assert played.summary["reason"] == (
        "completed, but no update was made in 2 of 2 steps: "
        "the rewards within every group were equal"
    )
    (alert,) = read_stream(played.run, "alerts")
    assert (alert["rule"], alert["batch"]) == ("no_update", 1)
    checkpoint, problems = latest_valid(played.run)
    assert problems == []
    before, after = (
        load_model(folder, dtype="float32", device="cpu").state_dict()
        for folder in (tiny, checkpoint.folder)
    )
    assert all(before[name].equal(after[name]) for name in before)


def test_rewards_that_are_all_none_change_nothing_and_the_run_says_so(define, play):
    played = play(define(reward="return None"))
    assert played.code == 0, played.error
    assert (
        "no update was made in 2 of 2 steps: no episode could be judged"
        in (played.summary["reason"])
    )
    assert values(played.run, "reward_mean") == [None, None]


def test_one_row_is_enough_and_prompts_that_do_not_fit_are_counted(define, play):
    played = play(define(dataset="[ROWS[0], {'prompt': 'long ' * 1000}]"))
    assert played.code == 0, played.error
    (loaded,) = events(played.run, "tasks_loaded")
    assert (loaded["tasks"], loaded["too_long"]) == (1, 1)
    assert played.summary["optimizer_steps"] == 2
    assert played.summary["steps_without_update"] == 0
    assert {episode.task.prompt_text for episode in read_episodes(played.run)} == {"Say 0."}


def test_weights_that_are_no_numbers_are_refused_before_training(define, play, tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "nan")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4000] + b"\xff" * 4000)
    played = play(define(model=folder))
    assert played.code == 4
    assert "its weights are damaged" in played.error["message"]
    assert read_episodes(played.run) == []


def test_without_shuffle_tasks_are_played_in_their_order_in_every_epoch(define, play):
    sets = ("recipe.num_steps=3", "recipe.prompts_per_batch=2", "recipe.group_size=2")
    played = play(define(dataset="ROWS[:3]"), *sets, "dataset.shuffle=false")
    assert played.code == 0, played.error
    batches = [set(), set(), set()]
    for episode in read_episodes(played.run, stream="train"):
        batches[episode.counters.batch].add(episode.task.prompt_text)
    assert batches == [{"Say 0.", "Say 1."}, {"Say 2.", "Say 0."}, {"Say 1.", "Say 2."}]
