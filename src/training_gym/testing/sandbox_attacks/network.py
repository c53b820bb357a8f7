"""Attacks on the host's sockets: its loopback, abstract and named ones."""

from __future__ import annotations

from training_gym.testing.sandbox_attack import Attack

NETWORK: tuple[Attack, ...] = (
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
)
