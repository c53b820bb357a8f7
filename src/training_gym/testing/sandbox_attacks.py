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

__all__ = ["ATTACKS", "SPEC", "Attack", "World", "planted_world", "run_bare", "try_attack"]

_SYSCALLS = """
import platform
x86 = platform.machine() == 'x86_64'
calls = {'mount': (165, 40), 'unshare': (272, 97), 'setns': (308, 268), 'ptrace': (101, 117),
  'keyctl': (250, 219), 'add_key': (248, 217), 'request_key': (249, 218), 'bpf': (321, 280),
  'io_uring_setup': (425, 425), 'userfaultfd': (323, 282), 'perf_event_open': (298, 241),
  'open_by_handle_at': (304, 265), 'process_vm_readv': (310, 270), 'kcmp': (312, 272),
  'fsopen': (430, 430), 'open_tree': (428, 428), 'pidfd_getfd': (438, 438), 'chroot': (161, 51),
  'quotactl': (179, 60), 'mount_setattr': (442, 442), 'fanotify_init': (300, 262)}
for name, numbers in calls.items():
    ctypes.set_errno(0)
    result = libc.syscall(numbers[0 if x86 else 1], -1, -1, -1, -1, -1, -1)
    # What is refused before it is looked at; any other error means that the kernel had a go at it.
    if result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        breach(name, result, errno.errorcode.get(ctypes.get_errno()))
"""

ATTACKS: tuple[Attack, ...] = (
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
    Attack(
        "calls a service on the host's loopback",
        "network",
        """
try:
    with socket.create_connection(('127.0.0.1', world.port), 2) as s: breach(s.recv(99))
except OSError: pass
""",
    ),
    Attack(
        "calls an abstract socket of the host",
        "network",
        """
try:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(2); s.connect('\\0' + world.abstract); breach(s.recv(99))
except OSError: pass
""",
    ),
    Attack(
        "calls a named socket of the host",
        "network",
        """
try:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(2); s.connect(f'{world.folder}/listener'); breach(s.recv(99))
except OSError: pass
""",
    ),
    Attack(
        "opens sockets towards the kernel and the hypervisor",
        "syscalls",
        """
for name, family in (('vsock', 40), ('netlink', 16), ('packet', 17), ('alg', 38), ('xdp', 44)):
    try: socket.socket(family, 3 if name == 'packet' else socket.SOCK_DGRAM).close(); breach(name)
    except OSError: pass
    try: socket.socket(family, socket.SOCK_RAW).close(); breach(name)
    except OSError: pass
""",
    ),
    Attack("uses dangerous system calls", "syscalls", _SYSCALLS),
    Attack(
        "makes a user namespace",
        "syscalls",
        """
pid = os.fork()
if pid == 0: os._exit(0 if libc.unshare(0x10000000) == 0 else 1)
if os.waitpid(pid, 0)[1] == 0: breach('unshare')
pid = libc.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
if pid > 0: os.waitpid(pid, 0); breach('clone')
""",
    ),
    Attack(
        "calls through another architecture's door",
        "syscalls",
        """
if os.uname().machine == 'x86_64':
    pid = os.fork()
    if pid == 0:
        libc.syscall(0x40000000 + 39); os._exit(0)
    if os.waitpid(pid, 0)[1] == 0: breach('x32')
""",  # in a child of its own: it is the process that is killed
    ),
    Attack(
        "becomes root by a setuid program",
        "syscalls",
        """
import subprocess, shutil
for command in (['su', '-c', 'id -u'], ['sudo', '-n', 'id', '-u']):
    if shutil.which(command[0]):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.stdout.strip() == '0': breach(command)
for call in (os.setuid, os.setgid):
    try: call(0); breach(call.__name__)
    except OSError: pass
""",
    ),
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
"""All that runs inside. What the host does with hostile files is in `sandbox_traps`."""
