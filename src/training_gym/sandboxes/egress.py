"""Networks for sandboxes that have none: a proxy on the host, reached through a tunnel.

What is guaranteed. The sandbox has no interface but its own loopback, so that not one packet leaves
it; what leaves are the bytes this proxy forwards, to a name and port that the policy allows, whose
address the *host* resolved and found public. Link-local (cloud metadata), private, loopback and
multicast addresses are refused whatever a name resolves to, unless the policy lists that address
itself. What is not: the proxy sees names, not contents. Inside an encrypted connection to an
allowed host anything can be said, also to other hosts behind the same front. Programs that ignore
`HTTP_PROXY` and `HTTPS_PROXY` reach nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import urlsplit

from training_gym.spec.sandboxes import Network

PROXY_PORT = 3128
_PORTS = (80, 443)
"""Allowed where the policy names none."""
_MAX_HEAD = 1 << 16
_HEAD_S = 30.0
_CONNECT_S = 20.0
_PIECE = 1 << 16

Resolve = Callable[[str, int], Awaitable[list[str]]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxied(Protocol):
    """A sandbox that a proxy can be opened to."""

    async def open_port(self, port: int, dial: Callable[[], Awaitable[Streams]]) -> str:
        """Let connections to a port inside reach what `dial` connects to."""
        ...

    def add_environment(self, names: dict[str, str]) -> None:
        """For all later commands."""
        ...

    @property
    def network(self) -> Network:
        """What it may reach."""
        ...


async def open_egress(sandbox: Proxied) -> None:
    """Give a sandbox the network its spec grants."""
    proxy = Proxy(sandbox.network)
    address = await sandbox.open_port(PROXY_PORT, proxy.dial)
    url = f"http://{address}"
    names = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), url)
    local = "localhost,127.0.0.1,::1"
    sandbox.add_environment({**names, "NO_PROXY": local, "no_proxy": local})


def allows(network: Network, host: str, port: int) -> bool:
    """Whether the policy grants a name and port. Addresses are a matter of their own."""
    if network.mode == "public":
        return True
    host = host.lower().rstrip(".")
    for entry in network.allowed_hosts:
        name, _, wanted = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        if port != int(wanted) if wanted else port not in _PORTS:
            continue
        if name.startswith("*."):
            if host.endswith(name[1:]):
                return True
        elif host == name:
            return True
    return False


def is_public(address: str) -> bool:
    """Whether an address belongs to the internet at large."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None) or getattr(parsed, "sixtofour", None)
    return parsed.is_global and not parsed.is_multicast and (mapped is None or mapped.is_global)


async def resolve(host: str, port: int) -> list[str]:
    """Addresses of a name, by the host's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Refused(Exception):
    """What the client is told instead of a connection."""


class Proxy:
    """An HTTP proxy for one sandbox: CONNECT, and plain requests of one each connection."""

    def __init__(self, network: Network, resolver: Resolve = resolve) -> None:
        """`resolver` turns names into addresses; the host's by default."""
        self._network = network
        self._resolve = resolver
        self._serving: set[asyncio.Task[None]] = set()

    async def dial(self) -> Streams:
        """A connection to this proxy, inside this process."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        task = asyncio.create_task(self._serve(*await asyncio.open_unix_connection(sock=theirs)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return reader, writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            host, port, first = _target(head)
            upstream = await self._connect(host, port)
        except (Refused, OSError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            body = f"training-gym sandbox: {why}\n"
            writer.write(
                f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body.encode())}\r\n"
                f"Connection: close\r\n\r\n{body}".encode()
            )
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        else:
            if first:
                upstream[1].write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _join((reader, writer), upstream)
        finally:
            with contextlib.suppress(OSError):
                writer.close()
                await writer.wait_closed()

    async def _connect(self, host: str, port: int) -> Streams:
        if not allows(self._network, host, port):
            allowed = ", ".join(self._network.allowed_hosts) or "nothing"
            raise Refused(f"{host}:{port} is not allowed; allowed: {allowed}")
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise Refused(f"{host} cannot be resolved: {error}") from None
        # Connect to the address that was looked at: a second look-up could tell another.
        listed = {entry.partition(":")[0] for entry in self._network.allowed_hosts}
        usable = [a for a in addresses if is_public(a) or (a == host and a in listed)]
        if not usable:
            raise Refused(f"{host} is at {', '.join(addresses)}: not a public address")
        failure: OSError = OSError("no address")
        for address in usable[:3]:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    return await asyncio.open_connection(address, port)
            except OSError as error:
                failure = error
        raise Refused(f"{host}:{port} cannot be reached: {failure}")


def _target(head: bytes) -> tuple[str, int, bytes]:
    """Host, port and what to send first; nothing to send: the client asked for a tunnel."""
    if len(head) > _MAX_HEAD:
        raise Refused("the request's head is too long")
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3:
        raise Refused("not a request to a proxy")
    method, target, version = words
    if method == "CONNECT":
        host, _, port = target.rpartition(":")
        if not host or not port.isdecimal():
            raise Refused(f"{target!r} is no host and port")
        return host.strip("[]"), int(port), b""
    try:
        parts = urlsplit(target)
        port_number = parts.port or 80
    except ValueError:
        raise Refused(f"{target!r} is no URL") from None
    if parts.scheme != "http" or not parts.hostname:
        raise Refused(f"{target!r} is not an http:// URL; use CONNECT for others")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # One request a connection: the next one could be meant for another host.
    kept = [
        header
        for header in rest.split(b"\r\n")
        if header and header.split(b":")[0].lower() not in _HOP_HEADERS
    ]
    host_line = f"Host: {parts.netloc.rpartition('@')[2]}".encode("latin-1")
    first = [f"{method} {path} {version}".encode("latin-1"), host_line, *kept]
    return parts.hostname, port_number, b"\r\n".join([*first, b"Connection: close", b"", b""])


_HOP_HEADERS = (b"host", b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive")


async def _join(client: Streams, upstream: Streams) -> None:
    """Carry bytes both ways until both ends have ended, or one breaks."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    try:
        await asyncio.gather(carry(client[0], upstream[1]), carry(upstream[0], client[1]))
    except OSError:
        return
    finally:
        with contextlib.suppress(OSError):
            upstream[1].close()
            await upstream[1].wait_closed()
