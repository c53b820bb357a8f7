"""An endpoint's address is looked at when it is written down, not when an episode needs it."""

from __future__ import annotations

import pytest

from training_gym.spec.endpoints import Endpoint
from training_gym.spec.errors import SpecError


@pytest.mark.parametrize(
    "url", ["foo", "", "desk:8000/v1", "ftp://desk/v1", "http://", "http://a:b"]
)
def test_what_is_no_address_is_refused_with_its_value(url):
    with pytest.raises(SpecError) as caught:
        Endpoint(base_url=url, model="m")
    assert f"base_url = {url!r}" in str(caught.value)
    assert "\n" not in str(caught.value.fix)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "https://desk", "http://[::1]:8000/v1"])
def test_addresses_stay_as_they_are(url):
    assert Endpoint(base_url=url, model="m").base_url == url
