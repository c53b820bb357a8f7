"""Attacks on the host's files, kernel settings and descriptors."""

from __future__ import annotations

from training_gym.testing.sandbox_attack import Attack

FILES: tuple[Attack, ...] = (
    Attack(
        "reads a secret of the host",
        "files",
        """
for path in (f'{world.folder}/secret', f'/proc/1/root{world.folder}/secret',
             f'/proc/self/root/../../..{world.folder}/secret', f'/host{world.folder}/secret'):
    try: breach(path, open(path).read())
    except OSError: pass
""",
    ),
    Attack(
        "reads the host's accounts",
        "files",
        """
for path in ('/etc/shadow', '/etc/sudoers', '/root/.bashrc', '/root/.ssh', '/home', '/var/log'):
    try: breach(path, len(open(path).read() if os.path.isfile(path) else os.listdir(path)[0]))
    except (OSError, IndexError): pass
""",
    ),
    Attack(
        "writes outside",
        "files",
        """
for path in (f'{world.folder}/pwned', f'{world.folder}/secret', '/usr/pwned', '/dev/pwned'):
    try:
        mode = 'a' if path.endswith('secret') else 'w'
        open(path, mode).close(); breach(path)
    except OSError: pass
for path in (f'{world.folder}/pwned', '/usr/pwned', '/dev/pwned'):
    if os.path.exists(path): os.unlink(path)
""",
    ),
    Attack(
        "remounts or shadows what is read-only",
        "files",
        """
if libc.mount(None, b'/usr', None, 32 | 4096, None) == 0: breach('remount')
if libc.mount(b'none', b'/mnt', b'tmpfs', 0, None) == 0:
    breach('mount'); libc.umount2(b'/mnt', 2)
""",
    ),
    Attack(
        "changes the kernel's settings",
        "files",
        """
for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/vm/drop_caches', '/proc/sysrq-trigger',
             '/proc/sys/kernel/printk', '/sys/power/state', '/sys/kernel/uevent_helper'):
    try: os.close(os.open(path, os.O_WRONLY)); breach(path)
    except OSError: pass
""",
    ),
    Attack(
        "finds descriptors that were left open",
        "files",
        """
for number in range(3, 512):
    try: os.fstat(number); breach(number)
    except OSError: pass
""",
        bare=False,
    ),
)
