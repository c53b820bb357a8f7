"""The zygote: a warm interpreter, in a tree of its own, that forks sandboxes on request.

Started as `python -I <archive>`; descriptor 3 leads to its owner, descriptor 4 is the owner's
pidfd. It has one thread, holds no secrets, and ends with its owner: then it kills what it forked
and removes what the owner left on disk, so that nothing outlives even a SIGKILL.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket

from training_gym.sandboxes.zygote.inside import frames
from training_gym.sandboxes.zygote.inside import syscalls as sc
from training_gym.sandboxes.zygote.inside.child import become_sandbox
from training_gym.sandboxes.zygote.inside.command import ImportState, preload, use_site
from training_gym.sandboxes.zygote.inside.init import WAKE, Init, open_wake
from training_gym.sandboxes.zygote.inside.janitor import Janitor
from training_gym.sandboxes.zygote.inside.rehearsal import rehearse
from training_gym.sandboxes.zygote.inside.sweep import Sweep
from training_gym.sandboxes.zygote.inside.trees import Boot, build_zygote_tree

_OWNER, _OWNER_HANDLE = 3, 4
_MAX_SPARE_NETWORKS = 64
_ANY = "any"
_ENDING_S = 60.0
"""Longest wait for the end of an owner that hung up without a word."""


class Waiting:
    """A forked process that waits to become a sandbox."""

    def __init__(self, control: socket.socket, user: str) -> None:
        """`control`: where its request goes; `user`: of which sandboxes it has the user map."""
        self.control, self.user = control, user


class Zygote:
    """Forks sandboxes, each into namespaces of its own."""

    def __init__(
        self, owner: socket.socket, boot: Boot, janitor: Janitor, first_uid: int, init: Init
    ) -> None:
        """One without sandboxes.

        Args:
            owner: Requests come from there.
            boot: What all its sandboxes have in common.
            janitor: Clears up at the end.
            first_uid: Host uid of the sandboxes' uid 0, where root maps a whole range.
            init: What process 1 of each will be.
        """
        self._owner, self._boot, self._janitor = owner, boot, janitor
        self._first_uid, self._init = first_uid, init
        self._spare_networks: list[int] = []
        self._networks: dict[int, int] = {}
        self._ahead: Waiting | None = None

    def serve(self) -> None:
        """Until the owner hangs up or dies."""
        self._fork_ahead()
        poll = select.poll()
        for fd in (_OWNER, _OWNER_HANDLE, WAKE[0]):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if WAKE[0] in ready:
                os.read(WAKE[0], 4096)
                self._reap()
            if _OWNER_HANDLE in ready:
                self._janitor.clean(self._networks, lambda: True)
            if _OWNER in ready:
                message, fds, _, _ = socket.recv_fds(self._owner, 1 << 16, 8)
                if message == frames.FAREWELL:
                    # The owner removes its files itself, if it still lives.
                    self._janitor.clean(self._networks, lambda: _owner_ended(0))
                elif not message:
                    # A killed process closes its descriptors a moment before it counts as ended.
                    self._janitor.clean(self._networks, lambda: _owner_ended(_ENDING_S))
                else:
                    self._spawn(message, fds)

    def _spawn(self, message: bytes, fds: list[int]) -> None:
        """Make one sandbox; `fds`: its link to the host, then its cgroups' task files.

        The process comes from the last time, its namespaces made; the next one's is forked while
        this one builds its tree.
        """
        user = json.loads(message)["user"] if self._boot.rootless else _ANY
        try:
            if not self._tell(self._take_ahead(user), message, fds):
                self._tell(self._fork(user), message, fds)
        except OSError as error:
            self._refuse(fds[0], str(error))
        for fd in fds:
            os.close(fd)
        self._fork_ahead()

    @staticmethod
    def _tell(child: Waiting | None, message: bytes, fds: list[int]) -> bool:
        """Whether it was there to hear."""
        if child is None:
            return False
        with child.control:
            try:
                socket.send_fds(child.control, [message], fds)
            except OSError:  # killed for lack of memory
                return False
        return True

    def _take_ahead(self, user: str) -> Waiting | None:
        child = self._ahead
        if child is None or child.user not in (_ANY, user):
            return None
        self._ahead = None
        return child

    def _fork_ahead(self) -> None:
        if self._ahead is None:
            with contextlib.suppress(OSError):  # whoever asks for the next one will be told
                self._ahead = self._fork(_ANY if not self._boot.rootless else "user")

    def _fork(self, user: str) -> Waiting:
        """A process in namespaces of its own, that waits for its request. Raises `OSError`."""
        network = None if self._boot.rootless else self._enter_network()
        flags = sc.NEWUSER | sc.NEWNS | sc.NEWPID | sc.NEWIPC | sc.NEWUTS | sc.NEWCGROUP
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = sc.clone(flags if network is not None else flags | sc.NEWNET)
        except OSError:
            if network is not None:
                self._spare_networks.append(network)
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            ours.close()
            become_sandbox(self._boot, theirs, self._init)
        theirs.close()
        self._networks[pid] = -1 if network is None else network
        try:
            self._map_users(pid, user)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            ours.close()
            raise
        return Waiting(ours, user)

    @staticmethod
    def _refuse(link: int, why: str) -> None:
        # Whoever asked may have given up meanwhile; the other sandboxes must not die of that.
        with contextlib.suppress(OSError):
            os.write(link, frames.document(frames.REFUSED, 0, {"error": why}))

    def _map_users(self, pid: int, user: str) -> None:
        if self._boot.rootless:
            uids = gids = "0 0 1" if user == "root" else "1000 0 1"
            _write(f"/proc/{pid}/setgroups", "deny")
        else:
            uids = gids = f"0 {self._first_uid} 65536"
        _write(f"/proc/{pid}/uid_map", uids)
        _write(f"/proc/{pid}/gid_map", gids)

    def _enter_network(self) -> int:
        """A network namespace no living sandbox is in, its loopback up."""
        if self._spare_networks:
            network = self._spare_networks.pop()
            sc.setns(network, sc.NEWNET)
            return network
        sc.unshare(sc.NEWNET)
        sc.raise_loopback()
        return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            network = self._networks.pop(pid, -1)
            if network >= 0 and len(self._spare_networks) < _MAX_SPARE_NETWORKS:
                self._spare_networks.append(network)
            elif network >= 0:
                os.close(network)


def _owner_ended(wait_s: float) -> bool:
    handle = select.poll()
    handle.register(_OWNER_HANDLE, select.POLLIN)
    return bool(handle.poll(wait_s * 1000))


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _enter_namespaces(rootless: bool) -> None:
    if not rootless:
        os.setgroups([])
        sc.unshare(sc.NEWNS)
        return
    uid, gid = os.getuid(), os.getgid()
    sc.unshare(sc.NEWUSER | sc.NEWNS | sc.NEWNET)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1")
    _write("/proc/self/gid_map", f"0 {gid} 1")


def main() -> None:
    """Boot from the first message, then serve."""
    open_wake()
    use_site()
    imports = ImportState()
    owner = socket.socket(fileno=_OWNER)
    told = json.loads(owner.recv(1 << 16))
    boot = Boot(
        rootless=told["rootless"],
        image=told["image"],
        programs=tuple(told["programs"]),
        mounts=tuple((source, target) for source, target in told["mounts"]),
        store=told["store"],
        scratch=told["scratch"],
    )
    try:
        janitor = Janitor(told["home"], told["folder"], told["cgroups"])
        _enter_namespaces(boot.rootless)
        build_zygote_tree(boot)
        preload(told["preload"])
    except (OSError, ImportError) as error:
        owner.send(json.dumps({"error": str(error)}).encode())
        return
    # An owner killed meanwhile hears nothing, and `serve` then removes what it left.
    with contextlib.suppress(OSError):
        owner.send(json.dumps({"ready": os.getpid()}).encode())
    nothing = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    rehearse(imports)
    init = Init(imports, Sweep(True))
    zygote = Zygote(owner, boot, janitor, told["first_uid"], init)
    imports.close()
    gc.collect()
    gc.freeze()
    gc.disable()
    zygote.serve()


if __name__ == "__main__":
    main()
