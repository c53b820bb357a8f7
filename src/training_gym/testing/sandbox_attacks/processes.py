"""Attacks on processes of the host and on the keeper, process 1 of the sandbox."""

from __future__ import annotations

from training_gym.testing.sandbox_attack import Attack

PROCESSES: tuple[Attack, ...] = (
    Attack(
        "sees processes of the host",
        "processes",
        """
if os.path.isdir(f'/proc/{world.victim}'):
    try: breach(open(f'/proc/{world.victim}/cmdline').read())
    except OSError: pass
""",
    ),
    Attack(
        "signals a process of the host",
        "processes",
        """
for pid in (world.victim,):
    try: os.kill(pid, 0); breach(pid)
    except OSError: pass
""",
    ),
    Attack(
        "kills its keeper",
        "leftovers",
        """
for pid in {1, os.getppid()} - {0}:
    for number in range(1, 65):
        try: os.kill(pid, number)
        except OSError: pass
""",
        bare=False,
    ),
    Attack(
        "traces a process of the host",
        "processes",
        """
if libc.ptrace(16, world.victim, 0, 0) == 0:
    breach('ptrace'); os.waitpid(world.victim, 0x40000000); libc.ptrace(17, world.victim, 0, 0)
for name in ('mem', 'environ', 'maps', 'fd'):
    try: os.close(os.open(f'/proc/{world.victim}/{name}', os.O_RDONLY)); breach(name)
    except OSError: pass
""",
    ),
    Attack(
        "traces its keeper",
        "leftovers",
        """
for pid in {1, os.getppid()} - {0}:
    if libc.ptrace(16, pid, 0, 0) == 0: breach('ptrace', pid); libc.ptrace(17, pid, 0, 0)
    for name in ('mem', 'environ', 'maps'):
        try:
            if open(f'/proc/{pid}/{name}', 'rb').read(10): breach(name, pid)
        except OSError: pass
    try: breach(os.listdir(f'/proc/{pid}/fd'))
    except OSError: pass
""",
        bare=False,
    ),
)
