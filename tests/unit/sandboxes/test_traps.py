"""Traps for the host: files it reads, sandboxes side by side, keepers that vanish."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from training_gym.spec.sandboxes import (
    ExecRequest,
    HostService,
    Mount,
    Network,
    Resources,
    SandboxDied,
    SandboxFileError,
    SandboxProvider,
    SandboxSpec,
)
from training_gym.testing.sandbox_contract import raises, shell
from training_gym.testing.sandbox_tiers import TIERS, ZYGOTES

pytestmark = pytest.mark.skipif(not ZYGOTES, reason="needs Linux")


def run(make: Callable[[], SandboxProvider], body: Callable[..., Awaitable[None]]) -> None:
    async def whole() -> None:
        provider = make()
        try:
            await body(provider)
        finally:
            await provider.close()

    asyncio.run(whole())


@pytest.mark.parametrize("tier", TIERS)
def test_downloads_stay_inside(tier, tmp_path) -> None:
    """Links, `..`, special files and files that are larger than they look."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    os.chmod(tmp_path, 0o755)

    async def body(provider: SandboxProvider) -> None:
        async with await provider.create(SandboxSpec()) as sandbox:
            script = (
                f"ln -s {secret} link; ln -s {tmp_path} folder; ln -s /proc/1/root{secret} magic;"
                "mkfifo pipe; truncate -s 200M sparse; ln -s /dev/zero endless;"
                f"ln -s ../../../../../../../..{secret} up; ln -s /proc/self/environ proc"
            )
            await sandbox.exec(shell(script))
            up = "../" * 12 + str(secret)
            for path in ("link", "folder/secret", "magic", "up", up, str(secret), "endless"):
                await raises(SandboxFileError, sandbox.read_file(path))
            for path in ("pipe", ".", "sparse", "a\0b", "x" * 5000):
                await raises(SandboxFileError, sandbox.read_file(path, max_bytes=1 << 20))

    run(TIERS[tier], body)


def test_the_naive_way_would_leak(tmp_path) -> None:
    """What `read_file` avoids does leak: the test above can fail."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "link").symlink_to(secret)
    assert (tmp_path / "workspace" / "link").read_text() == "of the host"


@pytest.mark.parametrize("tier", TIERS)
def test_sandboxes_do_not_meet(tier) -> None:
    """No abstract socket, loopback port, shared folder or shared memory leads to another one."""

    async def body(provider: SandboxProvider) -> None:
        one = await provider.create(SandboxSpec())
        other = await provider.create(SandboxSpec())
        code = (
            "import socket, time, os\n"
            "for make in (lambda: socket.create_server(('127.0.0.1', 7777)), abstract):\n"
            "    try: keep.append(make())\n"
            "    except OSError: pass\n"
        )
        listen = (
            "import socket\nkeep = []\ndef abstract():\n    s = socket.socket(socket.AF_UNIX)\n"
            "    s.bind('\\0meet'); s.listen(); return s\n"
            + code
            + "for folder in ('/tmp', '/var/tmp', '/dev/shm', '/dev', '/run'):\n"
            "    try: open(folder + '/meet', 'w').close()\n"
            "    except OSError: pass\n"
            "print('up', flush=True); time.sleep(30)"
        )
        process = await one.start(ExecRequest(argv=("python3", "-c", listen)))
        assert (await anext(process.output())).data == b"up\n"
        seek = (
            "import socket, os\n"
            "def tcp(): socket.create_connection(('127.0.0.1', 7777), 1)\n"
            "def abstract():\n    s = socket.socket(socket.AF_UNIX); s.connect('\\0meet')\n"
            "for meet in (tcp, abstract):\n"
            "    try: meet(); print('MET', meet)\n    except OSError: pass\n"
            "for folder in ('/tmp', '/var/tmp', '/dev/shm', '/dev', '/run'):\n"
            "    if os.path.exists(folder + '/meet'): print('MET', folder)\n"
        )
        found = await other.exec(ExecRequest(argv=("python3", "-c", seek)))
        assert (found.text, found.error_text) == ("", "")
        if tier in ("A", "B"):
            assert "MET" in (await one.exec(ExecRequest(argv=("python3", "-c", seek)))).text

    run(TIERS[tier], body)


@pytest.mark.parametrize("tier", TIERS)
def test_four_shapes_of_going_on_for_ever(tier) -> None:
    shapes = {
        "sleeping": "import time; time.sleep(100)",
        "spinning": "while True: pass",
        "deaf": "import signal, time\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\n"
        "time.sleep(100)",
        "in a grandchild that keeps our pipes": "import os, time\nif os.fork(): os._exit(0)\n"
        "os.setsid(); time.sleep(100)",
    }

    async def body(provider: SandboxProvider) -> None:
        async with await provider.create(SandboxSpec()) as sandbox:
            for shape, code in shapes.items():
                began = time.monotonic()
                request = ExecRequest(argv=("python3", "-c", code), timeout_s=0.7)
                result = await sandbox.exec(request)
                assert time.monotonic() - began < 15, shape
                expected = None if "grandchild" in shape else "exec_timeout"
                assert result.failure == expected, shape
            processes = await sandbox.exec(shell("ls /proc 2>/dev/null | grep -c '^[0-9]' || true"))
            assert int(processes.text or 0) <= 5 or tier == "C"

    run(TIERS[tier], body)


@pytest.mark.parametrize("tier", ZYGOTES)
def test_sandboxes_die_with_their_zygote(tier) -> None:
    async def body(provider) -> None:
        sandbox = await provider.create(SandboxSpec())
        zygote, _ = await provider._zygotes.get(sandbox.spec.image, ())
        zygote._process.kill()
        await raises(SandboxDied, sandbox.exec(shell("sleep 5")))
        assert not Path(f"/proc/{sandbox.pid}/root/workspace").exists()
        async with await provider.create(SandboxSpec()) as fresh:
            assert (await fresh.exec(shell("echo again"))).text == "again\n"

    run(ZYGOTES[tier], body)


@pytest.mark.parametrize("tier", ZYGOTES)
def test_a_killed_keeper_is_an_infrastructure_failure(tier) -> None:
    async def body(provider) -> None:
        sandbox = await provider.create(SandboxSpec())
        task = asyncio.create_task(sandbox.exec(shell("sleep 100")))
        await asyncio.sleep(0.2)
        os.kill(sandbox.pid, signal.SIGKILL)
        error = await raises(SandboxDied, task)
        assert not error.disposition.reward_valid  # type: ignore[attr-defined]

    run(ZYGOTES[tier], body)


@pytest.mark.parametrize("tier", ZYGOTES)
def test_mounts_are_seen_and_read_only(tier, tmp_path) -> None:
    (tmp_path / "given").write_text("seen")
    os.chmod(tmp_path, 0o777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)

    async def body(provider: SandboxProvider) -> None:
        spec = SandboxSpec(mounts=(Mount(source=str(tmp_path), target="/data/in"),))
        async with await provider.create(spec) as sandbox:
            result = await sandbox.exec(shell("cat /data/in/given; echo x > /data/in/new; true"))
            assert result.text == "seen"
            assert not (tmp_path / "new").exists()

    run(ZYGOTES[tier], body)


@pytest.mark.parametrize("tier", ZYGOTES)
def test_deletions_survive_forks_of_forks(tier) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with await provider.create(SandboxSpec()) as parent:
            await parent.exec(shell("mkdir d; echo 1 > d/a; echo 2 > d/b; echo 3 > c"))
            (child,) = await parent.fork()
            await child.exec(shell("rm -r d; mkdir d; echo 4 > d/e; rm c"))
            (grandchild,) = await child.fork()
            assert (await grandchild.exec(shell("ls; ls d"))).text == "d\ne\n"
            assert (await parent.exec(shell("ls; ls d"))).text == "c\nd\na\nb\n"

    run(ZYGOTES[tier], body)


@pytest.mark.parametrize("tier", ZYGOTES)
def test_warm_source_runs_like_a_program(tier) -> None:
    """Exit codes, tracebacks, stdin, imports of its own files, no state from one to the next."""

    async def body(provider: SandboxProvider) -> None:
        async with await provider.create(SandboxSpec()) as sandbox:
            await sandbox.write_file("mine.py", b"answer = 42\n")
            cases = {
                "import mine, json; print(mine.answer)": (0, "42\n", ""),
                "import sys; sys.exit(3)": (3, "", ""),
                "raise SystemExit('bye')": (1, "", "bye\n"),
                "import sys; print(sys.stdin.read())": (0, "given\n", ""),
                "import math; math.pi = 3": (0, "", ""),
                "import math; print(math.pi > 3.1)": (0, "True\n", ""),
                "import random; random.seed(1); print(random.random())": (
                    0,
                    "0.13436424411240122\n",
                    "",
                ),
                "import subprocess as s; print(s.check_output(['echo', 'x']))": (
                    0,
                    "b'x\\n'\n",
                    "",
                ),
                "import os; print(os.getcwd(), os.environ['HOME'])": (
                    0,
                    "/workspace /workspace\n",
                    "",
                ),
            }
            for code, expected in cases.items():
                result = await sandbox.exec(ExecRequest(code=code, stdin=b"given"))
                assert (result.exit_code, result.text, result.error_text) == expected, code
            failed = await sandbox.exec(ExecRequest(code="1 / 0"))
            assert failed.exit_code == 1
            assert failed.error_text.endswith("ZeroDivisionError: division by zero\n")
            draws = [await sandbox.exec(ExecRequest(code=_DRAW)) for _ in range(2)]
            assert draws[0].text != draws[1].text, "forks must not share random state"

    run(ZYGOTES[tier], body)


_DRAW = "import random; print(random.random())"


@pytest.mark.parametrize("tier", ZYGOTES)
def test_root_is_root_only_inside(tier, tmp_path) -> None:
    async def body(provider: SandboxProvider) -> None:
        async with await provider.create(SandboxSpec(user="root")) as sandbox:
            script = (
                "id -u; chown 0 made 2>/dev/null; mount -t tmpfs x /mnt 2>/dev/null && echo BAD"
            )
            result = await sandbox.exec(shell(f"touch made; {script}"))
            assert result.text == "0\n"
            outside = Path(f"/proc/{sandbox.pid}/uid_map").read_text().split()[1]
            assert outside not in ("0", "1000")

    run(ZYGOTES[tier], body)


@pytest.mark.parametrize("tier", ZYGOTES)
def test_egress_reaches_what_is_allowed_and_nothing_else(tier) -> None:
    async def body(provider: SandboxProvider) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        network = Network(mode="allowlist", allowed_hosts=(f"127.0.0.1:{port}",))
        fetch = (
            "import os, urllib.request as u\nos.environ.update(no_proxy='', NO_PROXY='')\n"
            "def get(url):\n    try: return u.urlopen(url, timeout=5).read()\n"
            "    except Exception as e: return type(e).__name__\n"
            f"print(get('http://127.0.0.1:{port}/'), get('http://127.0.0.1:{port + 1}/'),"
            " get('http://169.254.169.254/'), get('https://example.org/'))"
        )
        async with server, await provider.create(SandboxSpec(network=network)) as sandbox:
            result = await sandbox.exec(ExecRequest(code=fetch))
            assert result.text == "b'hello' HTTPError HTTPError URLError\n"
        async with await provider.create(SandboxSpec()) as sealed:
            assert "hello" not in (await sealed.exec(ExecRequest(code=fetch))).text

    run(ZYGOTES[tier], body)


@pytest.mark.parametrize("tier", ZYGOTES)
def test_a_service_streams_both_ways_without_losing_a_byte(tier) -> None:
    size = 3_000_000

    async def body(provider: SandboxProvider) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, await provider.create(SandboxSpec()) as sandbox:
            address = await sandbox.connect(HostService(name="e", address=f"127.0.0.1:{port}"))
            host, _, inner = address.partition(":")
            code = (
                "import socket, threading, hashlib, os\n"
                f"s = socket.create_connection(('{host}', {inner})); sent = os.urandom({size})\n"
                "def put(): s.sendall(sent); s.shutdown(1)\n"
                "threading.Thread(target=put).start(); got = b''\n"
                "while data := s.recv(65536): got += data\nprint(got == sent)"
            )
            assert (await sandbox.exec(ExecRequest(code=code))).text == "True\n"

    run(ZYGOTES[tier], body)


def test_memory_limit_holds_without_control_groups() -> None:
    from functools import partial

    from training_gym.testing.sandbox_attacks import ATTACKS, try_attack

    make = next(iter(ZYGOTES.values()))
    make = partial(make, use_cgroups=False)
    for attack in ATTACKS:
        if attack.guarantee == "memory":
            try_attack(attack, make)


def test_limits_of_one_spec_do_not_stay_for_the_next() -> None:
    async def body(provider: SandboxProvider) -> None:
        for memory in (64, 400):
            spec = SandboxSpec(resources=Resources(memory_mb=memory, disk_mb=16))
            async with await provider.create(spec) as sandbox:
                result = await sandbox.exec(ExecRequest(code="x = bytearray(150 << 20); print(1)"))
                assert result.ok == (memory == 400)

    run(next(iter(ZYGOTES.values())), body)
