import asyncio

import pytest

from training_gym.rewards import Judgement
from training_gym.rollouts.judging import EpisodeJudge
from training_gym.spec.episodes import Episode, Outcome, Score
from training_gym.spec.errors import RewardError

GOOD = Judgement(Score(value=1.0), None, "ok")
UNSURE = Judgement(None, None, "none")
BROKEN = Judgement(None, "reward 'r' raised ValueError: bad row on task t", "raised")


class Judges:
    """Judgements from a script, one list a call."""

    def __init__(self, *script):
        self.script = list(script)
        self.seen = []

    async def judge(self, episodes):
        self.seen.append([episode.id for episode in episodes])
        answer = self.script.pop(0)
        return [answer] * len(episodes) if isinstance(answer, Judgement) else answer


@pytest.fixture
def episodes(task):
    return [Episode(id=f"e{n}", task=task, group="g", member=n) for n in range(3)]


def judged(judge, episodes):
    return asyncio.run(judge(episodes))


def values(episodes):
    return [None if e.score is None else e.score.value for e in episodes]


def test_scores_are_attached_in_order(episodes):
    given = [Judgement(Score(value=float(n)), None, "ok") for n in range(3)]
    judge = EpisodeJudge(Judges(given), print)
    assert values(judged(judge, episodes)) == [0.0, 1.0, 2.0]
    assert (judge.num_judged, judge.num_failed) == (3, 0)


def test_what_cannot_be_judged_is_asked_once_more(episodes):
    judges = Judges([GOOD, UNSURE, GOOD], [Judgement(Score(value=9.0), None, "ok")] * 3)
    found = judged(EpisodeJudge(judges, print), episodes)
    # The group is judged as a whole again, but scores that were given stand.
    assert values(found) == [1.0, 9.0, 1.0]
    assert judges.seen == [["e0", "e1", "e2"]] * 2


def test_what_still_cannot_be_judged_has_no_score_and_is_no_failure(episodes):
    heard = []
    judge = EpisodeJudge(Judges(UNSURE, UNSURE), lambda *told: heard.append(told))
    assert values(judged(judge, episodes)) == [None] * 3
    assert (judge.num_judged, judge.num_failed, heard) == (3, 0, [])


def test_failures_are_told_and_few_are_endured(episodes):
    heard = []
    judges = Judges([GOOD, BROKEN, BROKEN], [GOOD, BROKEN, BROKEN])
    judge = EpisodeJudge(judges, lambda episode, kind, message: heard.append((episode.id, kind)))
    assert values(judged(judge, episodes)) == [1.0, None, None]
    assert heard == [("e1", "raised"), ("e2", "raised")]
    assert judge.num_failed == 2


def test_too_many_failures_end_the_run_and_name_the_row(episodes):
    judge = EpisodeJudge(Judges(BROKEN, BROKEN), lambda *_: None)
    with pytest.raises(RewardError, match=r"failed on 3 of 3 episodes; last: .*bad row on task t"):
        judged(judge, episodes)


def test_one_failure_in_ten_is_the_budget(episodes):
    judge = EpisodeJudge(Judges(BROKEN, BROKEN, BROKEN, BROKEN), lambda *_: None)
    judge.num_judged = 40
    judged(judge, episodes[:2])
    judged(judge, episodes[:2])
    assert (judge.num_judged, judge.num_failed) == (44, 4)
    judge = EpisodeJudge(Judges(BROKEN, BROKEN, BROKEN, BROKEN), lambda *_: None)
    judge.num_judged = 25
    judged(judge, episodes[:2])
    with pytest.raises(RewardError):
        judged(judge, episodes[:2])


def test_a_failure_of_infrastructure_is_never_judged(episodes):
    failed = episodes[1].changed(outcome=Outcome(status="infrastructure_failed"))
    judges = Judges(GOOD)
    found = judged(EpisodeJudge(judges, print), [episodes[0], failed, episodes[2]])
    assert values(found) == [1.0, None, 1.0]
    assert judges.seen == [["e0", "e2"]]
    nothing = Judges()
    assert judged(EpisodeJudge(nothing, print), [failed]) == [failed]


def test_without_rewards_the_environments_scores_stand(episodes):
    scored = [episodes[0].changed(score=Score(value=0.7)), episodes[1]]
    assert values(judged(EpisodeJudge(None, print), scored)) == [0.7, None]


def test_a_reward_that_hung_is_not_asked_again(episodes):
    hung = Judgement(None, "reward 'r' took longer than 30 s and was killed", "timeout")
    judges = Judges([GOOD, hung, GOOD])
    judge = EpisodeJudge(judges, lambda *told: None)
    assert values(judged(judge, episodes)) == [1.0, None, 1.0]
    assert (len(judges.seen), judge.num_failed) == (1, 1)
