"""Attacks on the kernel, by system calls, socket families and setuid programs."""

from __future__ import annotations

from training_gym.testing.sandbox_attack import Attack

_DANGEROUS_CALLS = """
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

SYSCALLS: tuple[Attack, ...] = (
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
    Attack("uses dangerous system calls", "syscalls", _DANGEROUS_CALLS),
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
)
