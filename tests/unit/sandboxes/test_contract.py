"""Every provider that works here keeps the contract, on every tier."""

from __future__ import annotations

import pytest

from training_gym.testing.sandbox_tiers import TIERS

pytest.register_assert_rewrite("training_gym.testing.sandbox_contract")

from training_gym.testing.sandbox_contract import CLAUSES, try_clause  # noqa: E402


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("tier", TIERS)
def test_contract(tier, clause) -> None:
    try_clause(clause, TIERS[tier])
