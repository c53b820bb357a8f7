"""Attacks on sandboxes, to be tried on every tier that claims to withstand them.

An attack is Python source that tries something on a planted `World` and prints `BREACH` and what it
got when it succeeds. Run without a sandbox (`bare`) it must succeed, or it would prove nothing;
`bare` is False where that would harm the machine.

```python
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_my_provider_withstands(attack):
    try_attack(attack, MyProvider)
```
"""

from __future__ import annotations

from training_gym.testing.sandbox_attack import (
    SPEC,
    Attack,
    World,
    planted_world,
    run_bare,
    try_attack,
)
from training_gym.testing.sandbox_attacks.files import FILES
from training_gym.testing.sandbox_attacks.network import NETWORK
from training_gym.testing.sandbox_attacks.processes import PROCESSES
from training_gym.testing.sandbox_attacks.resources import RESOURCES
from training_gym.testing.sandbox_attacks.syscalls import SYSCALLS

__all__ = ["ATTACKS", "SPEC", "Attack", "World", "planted_world", "run_bare", "try_attack"]

ATTACKS: tuple[Attack, ...] = (*FILES, *PROCESSES, *NETWORK, *SYSCALLS, *RESOURCES)
"""All that runs inside. What the host does with hostile files, `test_traps` tries."""
