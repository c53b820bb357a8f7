"""`training-gym sandbox run -- CMD`: one command in a fresh sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from training_gym.cli.options import AsJson

if TYPE_CHECKING:
    from training_gym.spec.sandboxes import ExecRequest, ExecResult, SandboxSpec

TIMED_OUT = 124
_OPTIONS = {
    "Resources.cpus": "--cpus",
    "Resources.memory_mb": "--memory",
    "Resources.disk_mb": "--disk",
    "Resources.processes": "--processes",
    "Network.allowed_hosts": "--allow",
    "DockerfileImage.context": "--dockerfile",
    "OciImage.reference": "--image",
    "FolderImage.path": "--image",
    "Mount.source": "--mount",
    "Mount.target": "--mount",
    "SandboxSpec.env": "--env",
    "ExecRequest.timeout_s": "--timeout",
    "ExecRequest.argv": "-- CMD",
}


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- CMD …", help="The program and its arguments.")
    ],
    provider: Annotated[
        str, typer.Option("--provider", help="Who makes the sandbox; `sandbox doctor` lists them.")
    ] = "local",
    image: Annotated[
        str,
        typer.Option(
            "--image",
            help="host, a folder with a root, or an OCI image: layout, archive or name.",
        ),
    ] = "host",
    dockerfile: Annotated[
        str, typer.Option("--dockerfile", metavar="FOLDER", help="Build this folder's Dockerfile.")
    ] = "",
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for the command.")] = 600.0,
    memory: Annotated[
        int,
        typer.Option(
            "--memory",
            help="MiB for all its processes; where files lie in memory, --disk is added.",
        ),
    ] = 512,
    disk: Annotated[int, typer.Option("--disk", help="MiB it may write.")] = 256,
    cpus: Annotated[float, typer.Option("--cpus", help="Processors.")] = 1.0,
    processes: Annotated[int, typer.Option("--processes", help="Processes and threads.")] = 64,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="HOST[:PORT]", help="A host it may reach; repeatable."),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Let it reach every public address.")
    ] = False,
    mount: Annotated[
        list[str] | None,
        typer.Option("--mount", metavar="SOURCE:TARGET", help="Show it a folder, read-only."),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Set a variable.")
    ] = None,
    root: Annotated[
        bool, typer.Option("--root", help="Run as uid 0, which is root only inside.")
    ] = False,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Hand our stdin over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a command in a fresh sandbox and destroy it.

    Its exit code passes through: 128 + N if signal N ended it, 124 if it ran out of time.
    """
    import sys

    from training_gym.cli.sandbox.words import image_of, mount_of, pair_of
    from training_gym.cli.wording import options_named
    from training_gym.sandboxes.registry import find
    from training_gym.spec.bridge import run_sync
    from training_gym.spec.sandboxes import ExecRequest, Network, Resources, SandboxSpec

    given = sys.stdin.buffer.read() if stdin else b""
    with options_named(_OPTIONS):
        spec = SandboxSpec(
            image=image_of(image, dockerfile),
            resources=Resources(cpus=cpus, memory_mb=memory, disk_mb=disk, processes=processes),
            network=Network(
                mode="public" if public else "allowlist" if allow else "none",
                allowed_hosts=tuple(allow or ()),
            ),
            mounts=tuple(mount_of(text) for text in mount or ()),
            env=dict(pair_of(text) for text in env or ()),
            user="root" if root else "user",
        )
        request = ExecRequest(argv=tuple(command), stdin=given, timeout_s=timeout)
    result = run_sync(_run(find(provider), spec, request, as_json=as_json))
    if as_json:
        _emit(result)
    _say_why(result)
    raise typer.Exit(_exit_code(result))


async def _run(
    provider: object, spec: SandboxSpec, request: ExecRequest, *, as_json: bool
) -> ExecResult:
    import sys
    from typing import cast

    from training_gym.spec.sandboxes import Output, SandboxProvider

    maker = cast(SandboxProvider, provider)
    try:
        async with await maker.create(spec) as sandbox:
            if as_json:
                return await sandbox.exec(request)
            async for event in sandbox.stream(request):
                if isinstance(event, Output):
                    stream = sys.stdout if event.stream == "stdout" else sys.stderr
                    # Bytes as they are: this is the command's own output, not ours.
                    stream.buffer.write(event.data)
                    stream.buffer.flush()
                else:
                    return event
            raise AssertionError("a stream ends with its result")
    finally:
        await maker.close()


def _emit(result: ExecResult) -> None:
    from training_gym.cli import output

    output.emit(
        "sandbox.run/1",
        exit_code=result.exit_code,
        failure=result.failure,
        tier=result.tier,
        stdout=result.text,
        stderr=result.error_text,
        stdout_bytes=result.stdout_bytes,
        stderr_bytes=result.stderr_bytes,
        duration_s=result.duration_s,
        cpu_s=result.cpu_s,
        peak_memory_mb=result.peak_memory_mb,
        leftovers=result.leftovers,
        clean=result.clean,
    )


def _say_why(result: ExecResult) -> None:
    from training_gym.cli import output
    from training_gym.spec.sandboxes import SandboxError

    try:
        result.raise_for_failure()
    except SandboxError as error:
        output.say(f"{error.message}\n{error.fix}")


def _exit_code(result: ExecResult) -> int:
    if result.failure == "exec_timeout":
        return TIMED_OUT
    return result.exit_code if result.exit_code >= 0 else 128 - result.exit_code
