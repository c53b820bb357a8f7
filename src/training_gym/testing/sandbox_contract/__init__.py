"""The contract every sandbox provider keeps, ours or yours, as a list of clauses to run.

```python
from training_gym.testing.sandbox_contract import CLAUSES, try_clause

@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_my_provider(clause):
    try_clause(clause, MyProvider)
```

Each clause gets a provider of its own, closed afterwards. Commands need a POSIX shell in the image;
`FILES` are the clauses that run none. What a provider's capabilities deny is tested to be refused.
Ask for assertion rewriting before the import if you want pytest to explain failures:
`pytest.register_assert_rewrite("training_gym.testing.sandbox_contract")`.
"""

from __future__ import annotations

from training_gym.spec.sandboxes import Sandbox
from training_gym.testing.sandbox_contract.clause import Clause, raises, shell, try_clause
from training_gym.testing.sandbox_contract.commands import COMMANDS
from training_gym.testing.sandbox_contract.files import FILES

CLAUSES: tuple[Clause, ...] = (*FILES, *COMMANDS)
"""All of it."""

__all__ = ["CLAUSES", "FILES", "Clause", "Sandbox", "raises", "shell", "try_clause"]
