import importlib.metadata

import pytest

from training_gym.platforms import registry
from training_gym.platforms.local.platform import LocalPlatform
from training_gym.platforms.registry import find, names
from training_gym.spec import plugins
from training_gym.spec.errors import PlatformError


@pytest.fixture
def declared(monkeypatch):
    """A package's entry point."""

    def declare(name, value):
        point = importlib.metadata.EntryPoint(name, value, registry.GROUP)
        points = importlib.metadata.EntryPoints([point])
        monkeypatch.setattr(plugins, "entry_points", lambda **given: points.select(**given))

    return declare


def test_ours_are_found_by_name():
    assert isinstance(find("local"), LocalPlatform)
    assert "local" in names()


def test_other_packages_declare_theirs(declared):
    declared("mine", "training_gym.testing.fake_platform:FakePlatform")
    assert find("mine").name == "fake"
    assert names() == ["local", "mine"]


def test_a_declaration_that_leads_nowhere_is_said(declared):
    declared("mine", "no_such_package:Platform")
    with pytest.raises(PlatformError, match="no_such_package"):
        find("mine")


def test_an_unknown_name_is_mended():
    with pytest.raises(PlatformError, match="'locale'") as caught:
        find("locale")
    assert caught.value.fix == "did you mean 'local'?"
