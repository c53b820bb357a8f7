"""What an egress policy grants: names, ports, public addresses, and nothing in disguise."""

from __future__ import annotations

import asyncio

import pytest

from training_gym.sandboxes.egress import Proxy, allows, is_public
from training_gym.spec.sandboxes import Network

POLICY = Network(mode="allowlist", allowed_hosts=("Example.org", "*.files.net", "db.local:5432"))


@pytest.mark.parametrize(
    ("host", "port", "granted"),
    [
        ("example.org", 443, True),
        ("EXAMPLE.ORG.", 80, True),
        ("example.org", 22, False),
        ("www.example.org", 443, False),
        ("example.org.evil.net", 443, False),
        ("a.b.files.net", 443, True),
        ("files.net", 443, False),
        ("evilfiles.net", 443, False),
        ("db.local", 5432, True),
        ("db.local", 443, False),
    ],
)
def test_names_and_ports(host, port, granted) -> None:
    assert allows(POLICY, host, port) is granted


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "::1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "2002:7f00:1::",
    ],
)
def test_addresses_that_are_nobodys_business(address) -> None:
    assert not is_public(address)
    assert is_public("1.1.1.1")


def test_a_public_name_at_a_private_address_is_refused() -> None:
    async def ask(request: bytes) -> bytes:
        async def resolve(host: str, port: int) -> list[str]:
            return ["169.254.169.254"]

        reader, writer = await Proxy(POLICY, resolve).dial()
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    tunnel = asyncio.run(ask(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n"))
    assert tunnel.startswith(b"HTTP/1.1 403")
    assert b"not a public address" in tunnel
    plain = asyncio.run(ask(b"GET http://evil.net/ HTTP/1.1\r\n\r\n"))
    assert b"evil.net:80 is not allowed" in plain
    assert asyncio.run(ask(b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 403")
