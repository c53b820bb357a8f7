from typing import get_args

from training_gym.records.health.rules import ADVICE, RULES
from training_gym.spec.health import RuleName, Thresholds


def test_every_name_that_can_be_turned_off_is_a_rule_and_the_other_way_round():
    assert [rule.name for rule in (*RULES, *ADVICE)] != []
    assert {rule.name for rule in (*RULES, *ADVICE)} == set(get_args(RuleName))


def test_every_rule_explains_itself():
    for rule in (*RULES, *ADVICE):
        assert rule.title
        assert rule.explanations
        assert rule.next
        assert rule.source


def test_rules_compete_in_explaining():
    assert all(len(rule.explanations) >= 2 for rule in RULES)


def test_every_rule_is_described_in_the_docs():
    from pathlib import Path

    page = Path(__file__).parents[4] / "docs" / "health.md"
    text = page.read_text()
    assert all(f"`{rule.name}`" in text for rule in (*RULES, *ADVICE))
    for name in Thresholds.model_fields:
        assert f"`{name}`" in text, name
