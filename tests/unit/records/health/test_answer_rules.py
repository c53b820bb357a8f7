import pytest

from training_gym.records.health.history import Facts
from training_gym.records.health.plays import Plays
from training_gym.records.health.rules import answers
from training_gym.spec.health import Thresholds

LIMITS = Thresholds()


@pytest.mark.parametrize(
    ("now", "severity", "way"),
    [
        (39, None, "longer"),
        (41, "warning", "longer"),
        (81, "critical", "longer"),
        (9, "warning", "shorter"),
    ],
)
def test_length_drift_goes_both_ways(history, plays, now, severity, way):
    steps = [plays((0.0, 1.0), length=20)] * 12 + [plays((0.0, 1.0), length=now)]
    found = answers.length_drift(history(plays=steps), "env", LIMITS)
    assert found.severity == severity
    assert way in found.message


def test_reward_follows_length_only_where_lengths_go_the_rewarded_way(history, play):
    def step(base):
        return Plays(
            tuple(
                play(reward=member / 8, group=f"g{group}", length=base + 10 * member)
                for group in range(4)
                for member in range(4)
            )
        )

    grown = [step(20)] * 12 + [step(60)] * 5
    found = answers.length_reward(history(plays=grown), "env", LIMITS)
    assert found.value == pytest.approx(1.0)
    assert found.severity == "critical"
    assert found.evidence[0].startswith("g")
    steady = [step(20)] * 17
    assert answers.length_reward(history(plays=steady), "env", LIMITS).severity is None


def test_truncation_counts_episodes_or_takes_the_metric(history, plays, play):
    part = Plays((play(status="truncated"), play(), play()))
    found = answers.truncation(history(plays=[part]), "env", LIMITS)
    assert found.value == pytest.approx(1 / 3)
    assert found.severity == "warning"
    reported = Plays(reported={"truncated_share": 0.6})
    assert answers.truncation(history(plays=[reported]), "env", LIMITS).severity == "critical"


def test_copies_count_within_a_group_only(history, play):
    alike = Plays(tuple(play(text=7, group="a") for _ in range(4)))
    found = answers.duplicates(history(plays=[alike]), "env", LIMITS)
    assert (found.value, found.severity) == (1.0, "critical")
    apart = Plays(tuple(play(text=7, group=f"g{n}") for n in range(4)))
    assert answers.duplicates(history(plays=[apart]), "env", LIMITS) is None


def test_short_answers_are_never_called_copies(history, play):
    short = Plays(tuple(play(group="a") for _ in range(4)))
    object.__setattr__(short, "plays", tuple(_short(one) for one in short.plays))
    assert answers.duplicates(history(plays=[short]), "env", LIMITS) is None


def _short(play):
    import dataclasses

    return dataclasses.replace(play, text=None)


def test_repetition_is_a_share_of_the_last_steps(history, play):
    part = Plays((play(repetitive=True), *[play() for _ in range(4)]))
    found = answers.repetition(history(plays=[part] * 3), "env", LIMITS)
    assert (found.value, found.severity) == (0.2, "warning")


def test_one_tampering_episode_is_enough_and_others_are_named_for_a_judge(history, play):
    parts = [
        Plays((play(reward=1.0, group=f"a{n}", tampering="" if n else "ends"), play(group=f"b{n}")))
        for n in range(60)
    ]
    found = answers.tampering(history(plays=parts[:50]), "env", LIMITS)
    assert (found.severity, found.at_once) == ("warning", True)
    assert found.evidence[0].startswith("a0.")
    assert len(found.details["judge_these"]) == 16
    assert answers.tampering(history(plays=parts[-50:]), "env", LIMITS).severity is None


def components(play, **values):
    total = sum(values.values())
    return Plays(tuple(play(reward=total + 0.01 * n, components=values) for n in range(8)))


def test_one_components_gain_counts_where_no_other_gains(history, play):
    early = [components(play, right=0.5, polite=0.2)] * 12
    hacked = [components(play, right=0.5, polite=0.9)] * 5
    found = answers.reward_concentration(history(plays=early + hacked), "env", LIMITS)
    assert found.value == 1.0
    assert found.severity == "warning"  # the content did not fall
    worse = [components(play, right=0.1, polite=0.9)] * 5
    assert (
        answers.reward_concentration(history(plays=early + worse), "env", LIMITS).severity
        == "critical"
    )
    both = [components(play, right=0.9, polite=0.7)] * 5
    assert answers.reward_concentration(history(plays=early + both), "env", LIMITS).severity is None


def test_a_component_about_form_may_make_half_of_the_gain_only(history, play):
    early = [components(play, right=0.2, format=0.2)] * 12
    later = [components(play, right=0.5, format=0.6)] * 5
    found = answers.reward_concentration(history(plays=early + later), "env", LIMITS)
    assert found.severity == "warning"
    facts = Facts(weights={"right": 1.0, "format": 0.2})
    weighed = answers.reward_concentration(history(plays=early + later, facts=facts), "env", LIMITS)
    assert weighed.severity is None


def test_no_component_made_a_gain_that_the_reward_has_not(history, play):
    """Of a product of components, one may wander while the reward stays where it is."""

    def step(fresh):
        parts = [{"fresh": fresh + 0.001 * n, "named": 0.0} for n in range(8)]
        return Plays(tuple(play(reward=0.0, components=values) for values in parts))

    wandered = [step(0.9)] * 12 + [step(0.95)] * 5
    found = answers.reward_concentration(history(plays=wandered), "env", LIMITS)
    assert (found.value, found.severity) == (1.0, None)
