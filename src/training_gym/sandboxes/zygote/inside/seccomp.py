"""The system-call filter: a classic BPF program that refuses what a sandbox has no need for.

A refused call fails with EPERM, so programs go on. Foreign architectures (32-bit, x32) are killed.
Sockets are limited by family, and `clone` may not make namespaces; `clone3`, whose flags a filter
cannot see, answers ENOSYS, upon which the C library uses `clone`.
"""

from __future__ import annotations

import ctypes
import socket
import struct

from training_gym.sandboxes.zygote.inside import syscalls

_DENIED = {  # name: (x86_64, aarch64)
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
    "memfd_secret": (447, 447),
}
_DENIED_X86 = {"iopl": 172, "ioperm": 173, "modify_ldt": 154, "uselib": 134, "nfsservctl": 180}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = _ERRNO | 1, _ERRNO | 38, _ERRNO | 97
_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that clone() takes
_CLONE3 = 435

Instruction = tuple[int, int, int, int]
LOCAL: tuple[int, ...] = (socket.AF_UNIX,)
INTERNET: tuple[int, ...] = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)


def denied_numbers() -> dict[str, int]:
    """Refused system calls of this architecture, by name."""
    column = 0 if syscalls.IS_X86 else 1
    numbers = {name: pair[column] for name, pair in _DENIED.items()}
    return {**numbers, **_DENIED_X86} if syscalls.IS_X86 else numbers


def program(
    families: tuple[int, ...], *, sockets: bool = True, also: tuple[int, ...] = ()
) -> bytes:
    """The filter. Without `sockets` only socket pairs can be made, of the first family.

    `also`: numbers of further system calls to refuse.
    """
    architecture = 0xC000003E if syscalls.IS_X86 else 0xC00000B7
    clone, make, make_pair = (56, 41, 53) if syscalls.IS_X86 else (220, 198, 199)
    code: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
    ]
    if syscalls.IS_X86:
        code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]
    for number in sorted({*denied_numbers().values(), *also}):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ENOSYS)]
    code += [
        (_EQUAL, 0, 4, clone),
        (_LOAD, 0, 0, 16),
        (_ANY_BIT, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code += _only_families(make, families if sockets else ())
    code += _only_families(make_pair, families[:1])
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _only_families(call: int, families: tuple[int, ...]) -> list[Instruction]:
    """Allow a call whose first argument is one of the families."""
    body: list[Instruction] = [(_LOAD, 0, 0, 16)]
    for place, family in enumerate(families):
        body.append((_EQUAL, len(families) - place, 0, family))
    body += [(_RETURN, 0, 0, _EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(body), call), *body]


class Filter:
    """A program laid out in memory as the kernel takes it: once, for all that are forked later."""

    def __init__(self, filter_program: bytes) -> None:
        """Not yet in force."""
        self._buffer = ctypes.create_string_buffer(filter_program, len(filter_program))
        count, address = len(filter_program) // 8, ctypes.addressof(self._buffer)
        header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", count, address), 16)
        self._header, self._address = header, ctypes.addressof(header)

    def install(self) -> None:
        """Put this process and all it will start under the filter, for ever."""
        syscalls.forbid_new_privileges()
        result = syscalls.libc.prctl(22, 2, self._address, 0, 0)
        syscalls.checked(result, "seccomp")
