"""Task folders, valid and invalid, on which our reading and the harbor package's must agree."""

from __future__ import annotations

import itertools
from pathlib import Path

MINIMAL = {
    "task.toml": 'schema_version = "1.4"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    "solution/solve.sh": "true\n",
}
STEPS = {
    "task.toml": '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\nmin_reward = 0.5\n',
    "environment/Dockerfile": "FROM scratch\n",
    "steps/one/instruction.md": "First.\n",
    "steps/one/tests/test.sh": "true\n",
    "steps/two/instruction.md": "Second.\n",
    "tests/test.sh": "true\n",
}

TOML = {
    "empty": "",
    "version-1.0": 'version = "1.0"\n',
    "version-is-a-number": "version = 1.0\n",
    "both-versions": 'version = "1.0"\nschema_version = "1.2"\n',
    "newer": 'schema_version = "1.9"\nfuture = 3\n[future_table]\nx = 1\n',
    "no-toml": "[[[",
    "package": '[task]\nname = "org/task"\nversion = "2"\nauthors = [{name = "A", email = "a@b"}]\n'
    'keywords = ["x"]\n',
    "package-without-name": '[task]\nversion = "2"\n',
    "package-no-organisation": '[task]\nname = "task"\n',
    "package-dots": '[task]\nname = "org/ta..sk"\n',
    "package-empty-version": '[task]\nname = "org/task"\nversion = ""\n',
    "metadata": "[metadata]\nwhen = 2024-01-02\ntags = ['a']\n[metadata.deep]\nx = 1.5\n",
    "agent": '[agent]\ntimeout_sec = 30\nuser = 1000\nnetwork_mode = "no-network"\n',
    "agent-user": '[agent]\nuser = "agent"\n',
    "agent-hosts": '[agent]\nallowed_hosts = ["a.com"]\n',
    "agent-hosts-empty": "[agent]\nallowed_hosts = []\n",
    "agent-timeout-text": '[agent]\ntimeout_sec = "fast"\n',
    "agent-timeout-digits": '[agent]\ntimeout_sec = "30"\n',
    "verifier": '[verifier]\ntimeout_sec = 12.5\nuser = "root"\n[verifier.env]\nA = "${B:-c}"\n',
    "verifier-env-number": "[verifier.env]\nA = 1\n",
    "verifier-separate": '[verifier]\nenvironment_mode = "separate"\n',
    "verifier-own-environment": '[verifier.environment]\ndocker_image = "x:1"\n',
    "verifier-contradiction": '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\n'
    "cpus = 1\n",
    "verifier-mode": '[verifier]\nenvironment_mode = "elsewhere"\n',
    "collect": '[[verifier.collect]]\ncommand = "dump"\nservice = " db "\ntimeout_sec = 5\n',
    "collect-service": '[[verifier.collect]]\ncommand = "dump"\nservice = "-db"\n',
    "environment": "[environment]\ncpus = 2.0\nmemory_mb = 512\nstorage_mb = 10\ngpus = 1\n"
    'gpu_types = ["H100"]\nworkdir = "/app"\nskills_dir = "/skills"\nbuild_timeout_sec = 9\n',
    "half-a-cpu": "[environment]\ncpus = 0.5\n",
    "cpus-text": '[environment]\ncpus = "two"\n',
    "cpus-infinite": "[environment]\ncpus = inf\n",
    "memory-float": "[environment]\nmemory_mb = 1.5\n",
    "memory-old": '[environment]\nmemory = "2G"\nstorage = "512m"\n',
    "memory-old-kilobytes": '[environment]\nmemory = "2048K"\n',
    "memory-old-plain": '[environment]\nmemory = "2048"\n',
    "memory-old-number": "[environment]\nmemory = 2048\n",
    "memory-twice": '[environment]\nmemory = "2G"\nmemory_mb = 2048\n',
    "memory-contradiction": '[environment]\nmemory = "2G"\nmemory_mb = 1\n',
    "internet": "[environment]\nallow_internet = false\n",
    "internet-yes": "[environment]\nallow_internet = true\n",
    "internet-overruled": '[environment]\nallow_internet = false\nnetwork_mode = "public"\n',
    "internet-text": '[environment]\nallow_internet = "maybe"\n',
    "internet-hosts": '[environment]\nallow_internet = false\nallowed_hosts = ["a.com"]\n',
    "verifier-internet": "[verifier.environment]\nallow_internet = false\ndocker_image = 'x'\n",
    "windows": '[environment]\nos = "Windows"\n',
    "amiga": '[environment]\nos = "amiga"\n',
    "no-network": '[environment]\nnetwork_mode = "no-network"\n',
    "network-mode": '[environment]\nnetwork_mode = "host"\n',
    "hosts-without-mode": '[environment]\nallowed_hosts = ["a.com"]\n',
    "tpu": '[environment.tpu]\ntype = "v6e"\ntopology = " 2x4 "\n',
    "tpu-bad": '[environment.tpu]\ntype = "v6e"\ntopology = "4"\n',
    "health": '[environment.healthcheck]\ncommand = "true"\nretries = 1\ninterval_sec = 0.1\n',
    "health-without-command": "[environment.healthcheck]\nretries = 1\n",
    "mcp": '[[environment.mcp_servers]]\nname = "m"\ntransport = "http"\nurl = "http://x"\n'
    '[environment.mcp_servers.headers]\nAuthorization = "Bearer ${TOKEN}"\nX-A = "b ${C:-d}"\n',
    "mcp-secret": '[[environment.mcp_servers]]\nname = "m"\nurl = "http://x"\n'
    '[environment.mcp_servers.headers]\nAuthorization = "Bearer abc"\n',
    "mcp-secret-default": '[[environment.mcp_servers]]\nname = "m"\nurl = "http://x"\n'
    '[environment.mcp_servers.headers]\nX-A = "${MY_TOKEN:-abc}"\n',
    "mcp-header": '[[environment.mcp_servers]]\nname = "m"\nurl = "http://x"\n'
    '[environment.mcp_servers.headers]\n"X A" = "b"\n',
    "mcp-template": '[[environment.mcp_servers]]\nname = "m"\nurl = "http://x"\n'
    '[environment.mcp_servers.headers]\nX-A = "${9}"\n',
    "mcp-stdio": '[[environment.mcp_servers]]\nname = "m"\ntransport = "stdio"\ncommand = "c"\n'
    'args = ["-x"]\n',
    "mcp-stdio-bare": '[[environment.mcp_servers]]\nname = "m"\ntransport = "stdio"\n',
    "mcp-no-url": '[[environment.mcp_servers]]\nname = "m"\n',
    "artifacts": 'artifacts = ["/app/out", {source = "/x", destination = "y/z", '
    'exclude = ["*.o"], service = "db"}]\n',
    "artifact-dots": 'artifacts = [{source = "/a/../b"}]\n',
    "artifact-dots-text": 'artifacts = ["/a/../b"]\n',
    "artifact-absolute": 'artifacts = [{source = "/a", destination = "/b"}]\n',
    "artifact-backslash": 'artifacts = [{source = "/a", destination = "b\\\\c"}]\n',
    "artifact-manifest": 'artifacts = [{source = "/a", destination = "manifest.json/"}]\n',
    "artifact-here": 'artifacts = [{source = "/a", destination = "."}]\n',
    "artifact-nowhere": 'artifacts = [{source = "/a", destination = ""}]\n',
    "artifact-sidecar-relative": 'artifacts = [{source = "a", service = "db"}]\n',
    "artifact-main-relative": 'artifacts = [{source = "a", service = "main"}]\n',
    "strategy": 'multi_step_reward_strategy = "final"\nsource = "elsewhere"\n',
    "strategy-bad": 'multi_step_reward_strategy = "best"\n',
    "unknown-keys": "[environment]\ncolour = 'red'\n[agent]\nmood = 1\n[nonsense]\nx = 1\n",
    "solution-env": "[solution.env]\nA = 'b'\n",
    "no-steps": "steps = []\n",
    "utf-8": '[task]\nname = "org/t"\ndescription = "grüße 你好"\n',
}

HOSTS = (
    "Example.COM.",
    "*.example.org",
    "10.0.0.1",
    "10.0.0.0/8",
    "10.0.0.1/8",
    "2001:DB8::0:1",
    "2001:db8::/32",
    "fe80::1%eth0",
    "",
    "*",
    "*.",
    "*.10.0.0.1",
    "a.*.com",
    "http://a.com",
    "a.com:80",
    "a.com/x",
    "a_b.com",
    "-a.com",
    "a" * 64 + ".com",
    "[::1]",
    "localhost",
    " x.y ",
)
STEP_NAMES = (
    "one",
    "two words",
    ".",
    "..",
    "a/b",
    "con",
    "CON.txt",
    "x.",
    "x ",
    "ä",
    "a:b",
    "com1",
    "com0",
    " ",
    "x" * 256,
    "LPT¹",
    "nul .x",
)

FILES: dict[str, dict[str, str | None]] = {
    "no-instruction": {**MINIMAL, "instruction.md": None},
    "no-tests": {**MINIMAL, "tests/test.sh": None},
    "only-a-bat": {**MINIMAL, "tests/test.sh": None, "tests/test.bat": "x"},
    "no-environment": {**MINIMAL, "environment/Dockerfile": None},
    "an-image": {
        **MINIMAL,
        "environment/Dockerfile": None,
        "task.toml": '[environment]\ndocker_image = "debian:12"\n',
    },
    "no-solution": {**MINIMAL, "solution/solve.sh": None},
    "canary": {**MINIMAL, "instruction.md": "<!-- Canary 123 -->\n# my CANARY\n\n\nDo it.\n# x\n"},
    "no-canary": {**MINIMAL, "instruction.md": "# Title\ncanary\n"},
    "more-files": {
        **MINIMAL,
        "README.md": "r", "trajectory.json": "{}", "tests/deep/er/x.py": "1", "other.txt": "no",
        "tests/__pycache__/x.pyc": "2", "tests/x.swp": "3", "solution/data.txt~": "4",
    },
    "gitignore": {
        **MINIMAL,
        ".gitignore": "# c\n*.log\n/tests/data/\n!keep.log\nsolution/**/tmp\n**/x?.py\n[ab].txt\n",
        "tests/a.log": "1", "tests/keep.log": "2", "tests/data/z": "3", "solution/p/q/tmp": "4",
        "solution/xy.py": "5", "solution/xyz.py": "6", "tests/a.txt": "7", "tests/c.txt": "8",
        "environment/__pycache__/kept": "9",
    },
    "harborignore": {
        **MINIMAL,
        "tests/.harborignore": "secret/\n*.tmp\n!good.tmp\n",
        "tests/secret/x": "1", "tests/a.tmp": "2", "tests/good.tmp": "3",
        "tests/sub/.harborignore": "!a.tmp\n", "tests/sub/a.tmp": "4",
        "environment/.harborignore": "*\n", "environment/y": "5",
    },
    "harborignore-the-test": {**MINIMAL, "tests/.harborignore": "test.sh\n"},
    "harborignore-everything": {**MINIMAL, "solution/.harborignore": "*\n"},
    "separate-bundled": {
        **MINIMAL,
        "task.toml": '[verifier]\nenvironment_mode = "separate"\n',
        "tests/test.sh": None, "tests/Dockerfile": "FROM scratch\n",
    },
    "separate-image": {
        **MINIMAL,
        "task.toml": '[verifier.environment]\ndocker_image = "x:1"\n', "tests/test.sh": None,
    },
    "separate-windows": {
        **MINIMAL,
        "task.toml": '[verifier.environment]\nos = "windows"\n', "tests/test.bat": "x",
    },
    "separate-windows-lacking": {
        **MINIMAL, "task.toml": '[verifier.environment]\nos = "windows"\n',
    },
    "separate-inherits-windows": {
        **MINIMAL,
        "task.toml": '[environment]\nos = "windows"\n[verifier.environment]\ncpus = 1\n',
        "tests/test.bat": "x",
    },
    "windows-with-bat": {
        **MINIMAL, "task.toml": '[environment]\nos = "windows"\n', "tests/test.bat": "x",
    },
    "steps": dict(STEPS),
    "steps-no-instruction": {**STEPS, "steps/two/instruction.md": None},
    "steps-no-tests": {**STEPS, "tests/test.sh": None},
    "steps-separate": {
        **STEPS,
        "task.toml": '[[steps]]\nname = "one"\n[steps.verifier]\nenvironment_mode = "separate"\n',
        "steps/one/tests/test.sh": None, "steps/one/tests/Dockerfile": "FROM scratch\n",
        "tests/test.sh": None,
    },
    "steps-rich": {
        **STEPS,
        "task.toml": 'multi_step_reward_strategy = "mean"\n[[steps]]\nname = "one"\n'
        'min_reward = {a = 1, b = 0.5}\nartifacts = ["/x"]\n[steps.agent]\ntimeout_sec = 5\n'
        '[steps.healthcheck]\ncommand = "true"\n[steps.verifier.env]\nA = "b"\n',
    },
    "steps-twice": {**STEPS, "task.toml": '[[steps]]\nname = "one"\n[[steps]]\nname = "ONE"\n'},
    "steps-min-reward": {**STEPS, "task.toml": '[[steps]]\nname = "one"\nmin_reward = "high"\n'},
}  # fmt: skip


def write_corpus(root: Path) -> list[str]:
    """Write every folder; returns their names."""
    written: dict[str, dict[str, str | None]] = dict(FILES)
    for name, text in TOML.items():
        written[f"toml-{name}"] = {**MINIMAL, "task.toml": text}
    for number, host in enumerate(HOSTS):
        text = f'[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["ok.com", "{host}"]\n'
        written[f"host-{number}"] = {**MINIMAL, "task.toml": text}
    for number, (mode, hosts) in enumerate(
        itertools.product(("public", "no-network", "allowlist"), ('["a.com"]', "[]"))
    ):
        text = f'[verifier]\nnetwork_mode = "{mode}"\nallowed_hosts = {hosts}\n'
        written[f"phase-{number}"] = {**MINIMAL, "task.toml": text}
    for number, step in enumerate(STEP_NAMES):
        written[f"step-{number}"] = {**STEPS, "task.toml": f'[[steps]]\nname = "{step}"\n'}
        if number in (1, 9, 12):
            written[f"step-{number}"][f"steps/{step}/instruction.md"] = "x"
    for name, files in written.items():
        for path, text in files.items():
            if text is not None:
                (root / name / path).parent.mkdir(parents=True, exist_ok=True)
                (root / name / path).write_text(text, encoding="utf-8")
    _write_links(root, written)
    return sorted(written)


def _write_links(root: Path, written: dict[str, dict[str, str | None]]) -> None:
    (root / "outside.txt").write_text("secret")
    links = {
        "link-out": ("tests/x", root / "outside.txt"),
        "link-in": ("tests/x", Path("../solution")),
        "link-round": ("tests/x", Path("..") / "tests"),
        "link-file": ("tests/x", Path("test.sh")),
        "link-out-environment": ("environment/x", root / "outside.txt"),
        "link-dangling": ("tests/x", Path("nowhere")),
    }
    for name, (path, target) in links.items():
        for file, text in MINIMAL.items():
            (root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (root / name / file).write_text(text)
        (root / name / path).symlink_to(target)
        written[name] = {}
