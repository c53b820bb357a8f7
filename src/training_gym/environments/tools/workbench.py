"""Tools of an agent that works in a sandbox: a shell, and files to read and to write.

For `ToolEnvironment(tools=[shell, read_file, write_file], sandbox=SandboxSpec(), leaves=["."])`.
"""

from __future__ import annotations

from training_gym.spec.sandboxes import ExecRequest, Sandbox, SandboxFileError

COMMAND_S = 60.0
"""Seconds that a command of `shell` may take."""


async def shell(sandbox: Sandbox, command: str) -> str:
    """Run a shell command in the workspace and return what it printed.

    Args:
        sandbox: Where; the model is not told of it.
        command: A line for the shell.
    """
    result = await sandbox.exec(ExecRequest(argv=("sh", "-c", command), timeout_s=COMMAND_S))
    said = result.text + result.error_text
    if result.failure is not None:
        return f"{said}\n[ended: {result.failure}]".strip()
    return said if result.exit_code == 0 else f"{said}\n[exit code {result.exit_code}]".strip()


async def read_file(sandbox: Sandbox, path: str) -> str:
    """Read a text file.

    Args:
        sandbox: Where; the model is not told of it.
        path: Relative to the workspace.
    """
    try:
        return (await sandbox.read_file(path, max_bytes=1 << 20)).decode("utf-8", "replace")
    except SandboxFileError as error:
        raise OSError(error.message) from None


async def write_file(sandbox: Sandbox, path: str, content: str) -> str:
    """Write a text file, replacing what was there.

    Args:
        sandbox: Where; the model is not told of it.
        path: Relative to the workspace.
        content: The whole text.
    """
    try:
        await sandbox.write_file(path, content.encode("utf-8", "replace"))
    except SandboxFileError as error:
        raise OSError(error.message) from None
    return f"wrote {len(content)} characters"
