"""Every provider that works here keeps the contract, on every tier."""

from __future__ import annotations

import pytest

from training_gym.testing.sandbox_contract import CLAUSES, try_clause
from training_gym.testing.sandbox_tiers import TIERS


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("tier", TIERS)
def test_contract(tier, clause) -> None:
    try_clause(clause, TIERS[tier])
