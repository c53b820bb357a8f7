"""Attacks that use up what all share: processes, memory, disk."""

from __future__ import annotations

from training_gym.testing.sandbox_attack import Attack

RESOURCES: tuple[Attack, ...] = (
    Attack(
        "forks without end",
        "process_count",
        """
made = 0
try:
    while made < 500:
        if os.fork() == 0: time.sleep(30); os._exit(0)
        made += 1
except OSError: pass
if made >= 100: breach(made)
""",
        bare=False,
    ),
    Attack(
        "takes all memory in one process",
        "memory",
        """
held = []
try:
    for _ in range(60): held.append(bytearray(20 << 20))
    breach('1200 MB')
except MemoryError: pass
""",
        bare=False,
        ends=("out_of_memory", None),  # type: ignore[arg-type]
    ),
    Attack(
        "takes all memory in many processes",
        "memory",
        """
for _ in range(12):
    if os.fork() == 0:
        held = bytearray(150 << 20)
        for place in range(0, len(held), 4096): held[place] = 1
        time.sleep(3); os._exit(0)
alive = 0
for _ in range(12): alive += os.waitstatus_to_exitcode(os.wait()[1]) == 0
if alive > 4: breach(alive, 'of 12 kept 150 MB')
""",
        bare=False,
        ends=("out_of_memory", None),  # type: ignore[arg-type]
    ),
    Attack(
        "fills the disk",
        "disk",
        """
written = 0
for folder in ('.', '/tmp', '/dev/shm', '/var/tmp'):
    try:
        for n in range(40):
            with open(f'{folder}/full{n}', 'wb') as f:
                for _ in range(8): f.write(b'x' * (1 << 20)); f.flush(); written += 1
    except OSError: pass
if written > 40: breach(written, 'MB')
""",
        bare=False,
    ),
    Attack(
        "fills the disk by a sparse file that it then writes",
        "disk",
        """
try:
    with open('sparse', 'wb') as f:
        f.truncate(1 << 40); breach('1 TB file')
except OSError: pass
""",
    ),
    Attack(
        "uses up all inodes",
        "disk",
        """
made = 0
try:
    for made in range(20000): os.close(os.open(f'n{made}', os.O_CREAT | os.O_WRONLY))
except OSError: pass
if made > 2500: breach(made)
""",
        bare=False,
    ),
)
