import pytest

pytest.register_assert_rewrite(
    "training_gym.testing.platform_contract",
    "training_gym.testing.sandbox_attacks",
    "training_gym.testing.sandbox_contract",
)
