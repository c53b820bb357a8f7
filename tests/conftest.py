"""What every test shares: which examples hypothesis draws."""

import os

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

pytest.register_assert_rewrite(
    "training_gym.testing.platform_contract",
    "training_gym.testing.sandbox_attacks",
    "training_gym.testing.sandbox_contract",
)

FRESH = int(os.environ.get("TRAINING_GYM_FRESH_EXAMPLES", "0"))
"""How many times the usual number of new examples to draw (`make test-random`); 0: the same ones as
always. A test that needs fewer than most takes a part of `settings.default.max_examples`, so that
both follow."""

settings.register_profile("always the same", derandomize=True, deadline=None, database=None)
settings.register_profile("fresh", max_examples=100 * FRESH or 1, deadline=None, print_blob=True)
settings.load_profile("fresh" if FRESH else "always the same")

if not FRESH:
    # Hypothesis also draws numbers and strings that it finds in the source of whatever modules were
    # imported: a landing would then meet examples that depend on which tests ran before, and on
    # every line of the package. No setting turns this off; `test_examples` sees if it comes back.
    NOTHING = providers.Constants()
    providers._get_local_constants = lambda: NOTHING
