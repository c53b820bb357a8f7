"""The shell inside a remote sandbox: scripts for a POSIX `sh` with the usual small tools.

Clients differ in how they pass stdin, cut output and decode bytes. Here everything goes through
files inside the sandbox, and what comes back is base64 between plain words.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass

from training_gym.spec.sandboxes import ExecRequest, SandboxSpec

INLINE_BYTES = 65_536
"""Of each stream, sent along with the result."""
_STEP_DOWN = "setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs --inh-caps=-all "
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def prepare(token: str, spec: SandboxSpec, *, root: bool) -> str:
    """Make the workspace and the folder of running commands; prints the workspace's path."""
    steps_down = root and spec.user == "user"
    return f"""
umask 022
W=/workspace
mkdir -p "$W" 2>/dev/null && [ -w "$W" ] || {{ W="$HOME/workspace"; mkdir -p "$W" || exit 1; }}
mkdir -p {control(token)} && chmod 711 {control(token)} || exit 1
{'command -v setpriv >/dev/null || exit 3; chown 1000:1000 "$W" || exit 1' if steps_down else ""}
printf %s "$W"
"""


def control(token: str) -> str:
    """Folder of running commands."""
    return f"/tmp/.training-gym-{token}"


def step_down(user: str, *, root: bool) -> str:
    """What goes before a command of this user."""
    return _STEP_DOWN if root and user == "user" else ""


@dataclass(frozen=True)
class Finished:
    """What `execute` prints."""

    exit_code: int
    failure: str
    duration_s: float
    stdout_bytes: int
    stderr_bytes: int
    stdout: bytes
    stderr: bytes


def execute(
    folder: str, request: ExecRequest, spec: SandboxSpec, *, workspace: str, user: str, root: bool
) -> str:
    """Run a command with stdin from a file and both outputs into files, within its limits.

    The command leads a session of its own (by `setsid`, which `set -m` cannot stand in for without
    a terminal). A watcher kills the whole of it at its time or output limit; what is left of it at
    the end is killed too. Sizes are asked for, because some `wc` read a file to its end, and one
    that is written to endlessly has none.
    """
    argv = request.argv or ("python3", "-c", request.code)
    environment = {"PATH": _PATH, "HOME": workspace, **spec.env, **request.env}
    words = " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
    command = f"{step_down(user, root=root)}env {words} {shlex.join(argv)}"
    return f"""
umask 022
size() {{ stat -c %s "$1" 2>/dev/null || wc -c <"$1"; }}
D={folder}; mkdir -p "$D"; cd {shlex.quote(workspace)} && cd {shlex.quote(request.cwd or ".")} || {{
  echo "127 - 0 0 0"; exit 0; }}
: >"$D/out"; : >"$D/err"; [ -f "$D/in" ] || : >"$D/in"; : >"$D/why"
B=$(date +%s)
S=$(command -v setsid)
$S {command} <"$D/in" >"$D/out" 2>"$D/err" &
P=$!
K=${{S:+-}}$P
echo "$K" >"$D/pid"
( N=0
while :; do
  sleep 0.1
  N=$((N + 1))
  if [ $N -ge {max(1, round(request.timeout_s * 10))} ]; then W=exec_timeout
  elif [ $(( $(size "$D/out") + $(size "$D/err") )) -gt {request.kill_output_bytes} ]; then
    W=output_limit
  else continue; fi
  echo $W >"$D/why"; kill -s KILL -- "$K"; exit
done ) >/dev/null 2>&1 &
G=$!
wait "$P" 2>/dev/null; R=$?
kill -s KILL "$G" 2>/dev/null; kill -s KILL -- "$K" 2>/dev/null
W=$(cat "$D/why")
echo "$R ${{W:--}} $(( $(date +%s) - B )) $(size "$D/out") $(size "$D/err")"
head -c {min(INLINE_BYTES, request.max_output_bytes)} "$D/out" | base64 | tr -d '\\n'; echo
head -c {min(INLINE_BYTES, request.max_output_bytes)} "$D/err" | base64 | tr -d '\\n'; echo
"""


def finished(output: str) -> Finished:
    """Read what `execute` printed."""
    lines = [*output.split("\n"), "", ""]
    code, failure, seconds, out, err = lines[0].split()
    status = int(code)
    return Finished(
        exit_code=128 - status if status > 128 else status,
        failure="" if failure == "-" else failure,
        duration_s=float(seconds),
        stdout_bytes=int(out),
        stderr_bytes=int(err),
        stdout=base64.b64decode(lines[1]),
        stderr=base64.b64decode(lines[2]),
    )


def kill(folder: str) -> str:
    """End a command that `execute` runs."""
    return f'K=$(cat {folder}/pid 2>/dev/null) && kill -s KILL -- "$K"; true'


def forget(folder: str) -> str:
    """Remove a command's files."""
    return f"rm -rf {folder}"


def piece(path: str, offset: int, size: int) -> str:
    """Part of a file, in base64."""
    return f"tail -c +{offset + 1} {shlex.quote(path)} 2>/dev/null | head -c {size} | base64"


def measure(path: str) -> str:
    """A regular file's size; exits with 4 if there is none, with 5 if it is something else."""
    name = shlex.quote(path)
    return f"""
[ -e {name} ] || exit 4
[ -f {name} ] && [ ! -L {name} ] || exit 5
[ -r {name} ] || exit 6
wc -c <{name}
"""


def place(source: str, target: str, mode: int, user: str, *, root: bool, append: bool) -> str:
    """Move a written piece to where it belongs, as the sandbox's user, folders included."""
    name, sign = shlex.quote(target), ">>" if append else ">"
    inner = (
        f'mkdir -p "$(dirname {name})" && {{ [ ! -L {name} ] || rm {name}; }} && '
        f"cat {sign}{name} && chmod {mode:o} {name}"
    )
    command = f"{step_down(user, root=root)}sh -c {shlex.quote(inner)}"
    return f"{command} <{source}; R=$?; rm {source}; exit $R"
