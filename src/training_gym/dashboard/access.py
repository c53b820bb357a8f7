"""Who may do what: nobody without a key, viewers read, editors annotate.

A key is made from the home's secret, so the address that was printed stays good when the server is
started again, and a cookie never holds it. Comparisons take the same time whatever is wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from training_gym.spec.errors import PlatformError

Role = Literal["viewer", "editor"]

COOKIE_DAYS = 30
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Identity:
    """Somebody who was let in."""

    role: Role
    name: str
    """What annotations say they are by."""


@dataclass(frozen=True)
class Access:
    """How this server lets people in."""

    secret: bytes
    read_only: bool = False
    """Nobody annotates, whatever their key."""
    password: str | None = None
    password_role: Role = "viewer"
    header: str | None = None
    """Name of the header in which a trusted reverse proxy says who somebody is."""
    proxies: frozenset[str] = frozenset({"127.0.0.1", "::1"})
    """Addresses whose header is believed."""
    editors: frozenset[str] = frozenset()
    """Names that a proxy may say and that may annotate; all others only read."""
    owner: str = "owner"
    """Name of whoever holds the editor's key."""

    def key(self, role: Role) -> str:
        """The key that the printed address carries."""
        return self._sign(f"key:{role}")

    def by_key(self, key: str) -> Identity | None:
        """Whose key it is."""
        for role in ("editor", "viewer"):
            if hmac.compare_digest(key.encode(), self.key(role).encode()):
                return self._identity(role, self.owner if role == "editor" else "guest")
        return None

    def by_password(self, password: str) -> Identity | None:
        """Who signs in with the password; None: wrong, or there is none."""
        if self.password is None:
            return None
        given, right = (self._slow(text) for text in (password, self.password))
        return self._identity(self.password_role, "guest") if _same(given, right) else None

    def by_header(self, headers: Mapping[str, str], peer: str) -> Identity | None:
        """Who a trusted proxy says it is."""
        name = headers.get(self.header, "").strip() if self.header else ""
        if not name or peer not in self.proxies:
            return None
        return self._identity("editor" if name in self.editors else "viewer", name[:200])

    def cookie(self, identity: Identity) -> str:
        """A signed cookie that lets somebody in for `COOKIE_DAYS`."""
        until = int(time.time()) + COOKIE_DAYS * 86400
        said = json.dumps([identity.role, identity.name, until]).encode()
        body = base64.urlsafe_b64encode(said).decode().rstrip("=")
        return f"{body}.{self._sign('cookie:' + body)}"

    def by_cookie(self, cookie: str) -> Identity | None:
        """Whom a cookie of ours was given to."""
        body, _, signature = cookie.partition(".")
        if not _same(signature.encode(), self._sign("cookie:" + body).encode()):
            return None
        padded = body + "=" * (-len(body) % 4)
        role, name, until = json.loads(base64.urlsafe_b64decode(padded))
        return self._identity(role, name) if until > time.time() else None

    def _identity(self, role: Role, name: str) -> Identity:
        return Identity("viewer" if self.read_only else role, name)

    def _sign(self, text: str) -> str:
        digest = hmac.new(self.secret, text.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def _slow(self, password: str) -> bytes:
        return hashlib.scrypt(password.encode(), salt=self.secret, n=2**14, r=8, p=1)


def _same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)


def read_secret(path: Path, *, new: bool = False) -> bytes:
    """The home's secret, made where there is none; `new`: a new one, which locks everybody out.

    Raises `PlatformError` where it cannot be kept, or where others of this machine could read it.
    """
    try:
        if new:
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _kept(path)
        with os.fdopen(descriptor, "wb") as file:
            secret = secrets.token_bytes(_SECRET_BYTES)
            file.write(secret)
        return secret
    except OSError as error:
        raise PlatformError(
            f"cannot keep the dashboard's key in {path}: {error.strerror or error}",
            fix="make its folder writable, or set TRAINING_GYM_HOME to one that is",
        ) from error


def _kept(path: Path) -> bytes:
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise PlatformError(
            f"{path} can be read by others of this machine",
            fix=f"make new keys: rm {path}, then start the dashboard again",
        )
    secret = path.read_bytes()
    if len(secret) != _SECRET_BYTES:
        raise PlatformError(
            f"{path} holds {len(secret)} bytes, not {_SECRET_BYTES}",
            fix=f"make new keys: rm {path}, then start the dashboard again",
        )
    return secret
