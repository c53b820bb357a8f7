"""A model behind an address: what it takes to talk to one, without its key's value."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from training_gym.spec.settings import Settings


class Endpoint(Settings):
    """An OpenAI-compatible server (Chat Completions) and one of its models."""

    base_url: str
    """Up to and including `/v1`, as clients of OpenAI take it."""
    model: str
    """The model's name there."""
    key_env: str | None = None
    """Name of the environment variable that holds the key; None: none is sent."""
    timeout_s: float = Field(120.0, gt=0)
    """Seconds for one answer."""
    attempts: int = Field(4, ge=1)
    """Tries for one answer, where the server is busy, failing or unreachable."""
    backoff_s: float = Field(0.5, ge=0)
    """Pause before the second try, doubled each time; a server's `Retry-After` comes first."""
    concurrency: int = Field(16, ge=1)
    """Requests at once."""

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            named = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port  # raises where it is no number of a port
        except ValueError as error:
            raise ValueError(f"this is no address: {error}") from None
        if not named:
            raise ValueError("an address begins with http:// or https:// and names a host")
        return url
