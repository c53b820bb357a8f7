"""Clauses that run commands: how they end, what they are given, what they may do meanwhile."""

from __future__ import annotations

import asyncio

from training_gym.spec.sandboxes import (
    ExecRequest,
    ExecResult,
    HostService,
    Output,
    SandboxFileError,
    SandboxProvider,
    SandboxSpec,
    SandboxUnsupported,
)
from training_gym.testing.sandbox_contract.clause import Clause, raises, shell


async def tells_how_commands_end(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Exit codes, both outputs, signals, a program that is not there: results, not errors."""
    async with await provider.create(spec) as sandbox:
        result = await sandbox.exec(shell("echo out; echo err >&2; exit 3"))
        assert (result.exit_code, result.text, result.error_text) == (3, "out\n", "err\n")
        assert (result.failure, result.tier, result.clean) == (None, sandbox.tier, True)
        assert (result.stdout_bytes, result.stderr_bytes) == (4, 4)
        assert not result.ok
        assert (await sandbox.exec(shell("kill -9 $$"))).exit_code in (-9, 137)
        absent = await sandbox.exec(ExecRequest(argv=("no-such-program",)))
        assert absent.exit_code == 127
        assert "no-such-program" in absent.error_text


async def hands_over_what_was_given(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Arguments byte for byte, stdin of any length, environment, working folder."""
    async with await provider.create(spec.changed(env={"FROM_SPEC": "s", "BOTH": "s"})) as sandbox:
        words = ("a b", "$HOME", "'\"", "ü", "")
        echoed = await sandbox.exec(ExecRequest(argv=("printf", "<%s>", *words)))
        assert echoed.text == "".join(f"<{word}>" for word in words)
        stdin = bytes(range(256)) * 2000
        assert (await sandbox.exec(ExecRequest(argv=("cat",), stdin=stdin))).stdout == stdin
        assert (await sandbox.exec(ExecRequest(argv=("true",), stdin=stdin))).ok, "stdin unread"
        assert (await sandbox.exec(ExecRequest(argv=("cat",)))).stdout == b""
        env = await sandbox.exec(shell("echo $FROM_SPEC $BOTH $OWN", env={"BOTH": "r", "OWN": "o"}))
        assert env.text == "s r o\n"
        assert (await sandbox.exec(shell("pwd"))).text == sandbox.workspace + "\n"
        await sandbox.write_file("below/x", b"")
        assert (await sandbox.exec(shell("ls", cwd="below"))).text == "x\n"
        assert not (await sandbox.exec(shell("true", cwd="absent"))).ok


async def shares_files_with_commands(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Both ways, with modes; what a command leaves is there for the next."""
    async with await provider.create(spec) as sandbox:
        await sandbox.write_file("run.sh", b"#!/bin/sh\necho ran > made\n", mode=0o755)
        assert (await sandbox.exec(ExecRequest(argv=("./run.sh",)))).ok
        assert await sandbox.read_file("made") == b"ran\n"
        assert (await sandbox.exec(shell("cat made; mkdir folder; mkfifo pipe"))).text == "ran\n"
        await raises(SandboxFileError, sandbox.read_file("folder"))
        await raises(SandboxFileError, sandbox.read_file("pipe"))
        await raises(SandboxFileError, sandbox.write_file("made/below", b""))


async def ends_commands_in_time(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """With what was written until then; the sandbox is as good as before."""
    async with await provider.create(spec) as sandbox:
        result = await sandbox.exec(shell("echo begun; sleep 100", timeout_s=0.5))
        assert (result.failure, result.text) == ("exec_timeout", "begun\n")
        assert result.exit_code != 0
        deaf = await sandbox.exec(shell("trap '' TERM INT HUP; sleep 100", timeout_s=0.5))
        assert deaf.failure == "exec_timeout"
        assert (await sandbox.exec(shell("echo fine"))).text == "fine\n"


async def bounds_output(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Keeps what was asked for, counts all of it, kills what never stops."""
    async with await provider.create(spec) as sandbox:
        some = await sandbox.exec(shell("head -c 500000 /dev/zero", max_output_bytes=1000))
        assert (len(some.stdout), some.stdout_bytes, some.failure) == (1000, 500_000, None)
        endless = await sandbox.exec(
            shell("cat /dev/zero", max_output_bytes=10, kill_output_bytes=1_000_000)
        )
        assert (endless.failure, len(endless.stdout)) == ("output_limit", 10)
        assert (await sandbox.exec(shell("echo fine"))).text == "fine\n"


async def leaves_nothing_running(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """A process that outlives its command, in a session of its own, is gone with it."""
    async with await provider.create(spec) as sandbox:
        script = "(while :; do echo >> tick; sleep 0.02; done) </dev/null >/dev/null 2>&1 &"
        result = await sandbox.exec(shell(f"{script} sleep 0.2"))
        assert result.ok
        assert result.clean
        before = await sandbox.read_file("tick")
        await sandbox.exec(shell("sleep 0.3"))
        assert await sandbox.read_file("tick") == before


async def streams(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """What is written comes while the command runs; the result is last."""
    async with await provider.create(spec) as sandbox:
        script = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two >&2; exit 4"
        events: list[Output | ExecResult] = []
        async for event in sandbox.stream(shell(f"rm -f go; {script}", timeout_s=30)):
            if not events:
                assert isinstance(event, Output)
                if provider.capabilities().background:
                    await sandbox.write_file("go", b"")
                else:
                    return
            events.append(event)
        assert [e.data for e in events if isinstance(e, Output) and e.stream == "stdout"] == [
            b"one\n"
        ]
        result = events[-1]
        assert isinstance(result, ExecResult)
        assert (result.exit_code, result.stdout) == (4, b"")


async def cancels(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """A cancelled command is killed, and the next one finds the sandbox whole."""
    async with await provider.create(spec) as sandbox:
        task = asyncio.create_task(sandbox.exec(shell("sleep 100; echo late > late")))
        await asyncio.sleep(0.3)
        task.cancel()
        await raises(asyncio.CancelledError, task)
        assert (await sandbox.exec(shell("ls"))).text == ""


async def takes_turns(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Commands given at once run one after another, and none is lost."""
    async with await provider.create(spec) as sandbox:
        script = "mkdir lock || exit 9; sleep 0.05; rmdir lock; echo"
        results = await asyncio.gather(*(sandbox.exec(shell(f"{script} {n}")) for n in range(5)))
        assert [result.text for result in results] == [f"{n}\n" for n in range(5)]


async def runs_in_the_background(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """A background command survives others, talks, is waited for and killed with its children."""
    async with await provider.create(spec) as sandbox:
        request = shell("while read line; do echo got $line; done; exit 5", timeout_s=60)
        if not provider.capabilities().background:
            await raises(SandboxUnsupported, sandbox.start(request))
            return
        process = await sandbox.start(request)
        assert (await sandbox.exec(shell("echo meanwhile"))).text == "meanwhile\n"
        outputs = process.output()
        await process.write(b"one\n")
        assert (await anext(outputs)).data == b"got one\n"
        await process.write(b"")
        assert (await process.wait()).exit_code == 5
        ticking = await sandbox.start(
            shell("(while :; do echo >> tick; sleep 0.02; done) & sleep 100", timeout_s=60)
        )
        # Two commands see it go on: however busy the machine is, it ends with the second.
        for lines in (1, 2):
            seen = shell(
                f'until [ "$(wc -l < tick 2>/dev/null || echo 0)" -ge {lines} ]; do :; done'
            )
            assert (await sandbox.exec(seen)).ok, "it goes on beside other commands"
        await ticking.kill()
        before = await sandbox.read_file("tick")
        await sandbox.exec(shell("sleep 0.2"))
        assert await sandbox.read_file("tick") == before
        brief = await sandbox.start(shell("sleep 100", timeout_s=0.3))
        assert (await brief.wait()).failure == "exec_timeout"


async def keeps_sandboxes_apart(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Two live ones share neither files nor processes."""
    async with await provider.create(spec) as one, await provider.create(spec) as other:
        await one.exec(shell("echo secret > mine; echo secret > /tmp/mine"))
        found = await other.exec(shell("cat mine /tmp/mine 2>/dev/null"))
        assert "secret" not in found.text
        assert one.id != other.id


async def opens_one_service_of_the_host(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """What listens on the host is reachable after `connect`, and only that."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(b"heard " + line)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    service = HostService(name="test", address=f"127.0.0.1:{port}")
    async with server, await provider.create(spec) as sandbox:
        if not provider.capabilities().connect:
            await raises(SandboxUnsupported, sandbox.connect(service))
            return
        address = await sandbox.connect(service)
        assert (await sandbox.exec(_call(address))).text == "heard hello\n"
        together = await asyncio.gather(*(sandbox.exec(_call(address)) for _ in range(3)))
        assert {result.text for result in together} == {"heard hello\n"}
        assert not (await sandbox.exec(_call(f"127.0.0.1:{port}"))).ok


def _call(address: str) -> ExecRequest:
    """Say hello to a service: with Python where the image has it, else with netcat."""
    host, _, port = address.rpartition(":")
    code = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5);"
        "s.sendall(b'hello\\n'); sys.stdout.write(s.makefile().read())"
    )
    script = (
        'if command -v python3 >/dev/null; then exec python3 -c "$1" "$2" "$3"; fi;'
        'echo hello | nc -w 5 "$2" "$3"'
    )
    return ExecRequest(argv=("sh", "-c", script, "sh", code, host, port), timeout_s=20)


COMMANDS: tuple[Clause, ...] = (
    tells_how_commands_end,
    hands_over_what_was_given,
    shares_files_with_commands,
    ends_commands_in_time,
    bounds_output,
    leaves_nothing_running,
    streams,
    cancels,
    takes_turns,
    runs_in_the_background,
    keeps_sandboxes_apart,
    opens_one_service_of_the_host,
)
"""Clauses that run commands."""
