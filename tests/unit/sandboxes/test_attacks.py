"""Every attack fails on every tier that claims so, and succeeds where nothing defends."""

from __future__ import annotations

import os

import pytest

from training_gym.testing.sandbox_attacks import (
    ATTACKS,
    planted_world,
    run_bare,
    try_attack,
)
from training_gym.testing.sandbox_tiers import TIERS, claimed


@pytest.mark.parametrize(
    ("tier", "attack"), claimed(), ids=lambda value: getattr(value, "name", value)
)
def test_attack_is_withstood(tier, attack) -> None:
    try_attack(attack, TIERS[tier])


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user is refused some of it anyway")
@pytest.mark.parametrize(
    "attack", [attack for attack in ATTACKS if attack.bare], ids=lambda attack: attack.name
)
def test_attack_succeeds_without_a_sandbox(attack) -> None:
    with planted_world() as world:
        assert "BREACH" in run_bare(attack, world)
