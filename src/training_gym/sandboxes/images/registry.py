"""Pulling an image from a container registry over its HTTP interface, without a daemon."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from training_gym.sandboxes.images.layout import Layers, choose, environment
from training_gym.spec.sandboxes import RateLimited, StartFailed, StartTimeout

HOST_VARIABLE = "TRAINING_GYM_REGISTRY"
"""Names the registry of images given without one."""
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Reference:
    """Where an image lies."""

    host: str
    name: str
    version: str
    """A tag or a digest."""

    @property
    def base(self) -> str:
        """Beginning of its addresses."""
        local = self.host.partition(":")[0] in ("localhost", "127.0.0.1")
        return f"{'http' if local else 'https'}://{self.host}/v2/{self.name}"


def parse(text: str) -> Reference:
    """`host/name:tag` or `host/name@sha256:…`; raises `StartFailed`."""
    name, at, digest = text.partition("@")
    host, slash, rest = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = os.environ.get(HOST_VARIABLE, ""), name
        if not host:
            raise StartFailed(
                f"image {text!r} names no registry, and no such file exists",
                fix=f"write the registry's host before the name, or set {HOST_VARIABLE}",
            )
    path, _, tag = rest.partition(":")
    if not re.fullmatch(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*", path):
        raise StartFailed(f"{text!r} is no name of an image", fix="such as host/name:tag")
    return Reference(host, path, digest if at else tag or "latest")


async def pull(text: str, blobs: Path) -> Layers:
    """Fetch what is not there yet. Raises `StartFailed`, `StartTimeout`, `RateLimited`."""
    reference = parse(text)
    blobs.mkdir(parents=True, exist_ok=True)
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=True) as client:
            return await Pull(client, reference, blobs).run()
    except httpx.TimeoutException as error:
        raise StartTimeout(
            f"registry {reference.host} does not answer: {type(error).__name__}",
            fix="try again, or use an OCI layout on disk",
        ) from error
    except httpx.HTTPError as error:
        raise StartTimeout(
            f"registry {reference.host} cannot be reached: {error}",
            fix="check the network, or give the path of an OCI layout or archive",
        ) from error
    except (KeyError, ValueError, TypeError) as error:
        raise StartFailed(
            f"registry {reference.host} answers with no image {text!r}: {error}",
            fix="check the name, and that it has an image for this machine",
        ) from error


class Pull:
    """One image being fetched."""

    def __init__(self, client: httpx.AsyncClient, reference: Reference, blobs: Path) -> None:
        """Blobs are kept in a folder, named by their digests."""
        self._client, self._reference, self._blobs = client, reference, blobs
        self._headers: dict[str, str] = {}

    async def run(self) -> Layers:
        """Manifest, configuration and layers."""
        digest, manifest = await self._manifest(self._reference.version)
        while "manifests" in manifest:
            digest, manifest = await self._manifest(choose(manifest["manifests"])["digest"])
        config = json.loads((await self._blob(manifest["config"]["digest"])).read_bytes())
        layers = [await self._blob(layer["digest"]) for layer in manifest["layers"]]
        return Layers(digest, layers, environment(config))

    async def _manifest(self, version: str) -> tuple[str, Mapping[str, Any]]:
        address = f"{self._reference.base}/manifests/{version}"
        answer = await self._get(address, {"Accept": _MANIFESTS})
        digest = hashlib.sha256(answer.content).hexdigest()
        if version.startswith("sha256:") and version != f"sha256:{digest}":
            raise ValueError(f"manifest {version} has digest {digest[:12]}")
        return digest, answer.json()

    async def _get(self, address: str, headers: Mapping[str, str]) -> httpx.Response:
        answer = await self._client.get(address, headers={**self._headers, **headers})
        if answer.status_code == 401 and not self._headers:
            await self._sign_in(answer.headers.get("WWW-Authenticate", ""))
            answer = await self._client.get(address, headers={**self._headers, **headers})
        self._check(answer)
        return answer

    async def _sign_in(self, challenge: str) -> None:
        """Ask for the anonymous token that public images need."""
        told = dict(_CHALLENGE.findall(challenge))
        if not challenge.startswith("Bearer ") or "realm" not in told:
            raise ValueError("it wants credentials, which are not supported")
        realm = told.pop("realm")
        answer = await self._client.get(realm, params=told)
        self._check(answer)
        body = answer.json()
        self._headers["Authorization"] = f"Bearer {body.get('token') or body['access_token']}"

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code == 429:
            after = answer.headers.get("Retry-After", "")
            raise RateLimited(
                f"registry {self._reference.host} allows no more pulls now",
                fix="wait, or use an OCI layout on disk",
                retry_after_s=float(after) if after.isdecimal() else None,
            )
        if answer.status_code >= 500:
            answer.raise_for_status()
        if answer.status_code >= 400:
            raise ValueError(f"HTTP {answer.status_code} for {answer.url.path}")

    async def _blob(self, digest: str) -> Path:
        kind, _, value = digest.partition(":")
        if kind != "sha256" or not re.fullmatch(r"[0-9a-f]{64}", value):
            raise ValueError(f"digest {digest!r}")
        target = self._blobs / value
        if target.exists():
            return target
        address = f"{self._reference.base}/blobs/{digest}"
        found = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=self._blobs, delete=False) as partial:
            try:
                async with self._client.stream("GET", address, headers=self._headers) as answer:
                    self._check(answer)
                    async for piece in answer.aiter_bytes():
                        found.update(piece)
                        partial.write(piece)
                if found.hexdigest() != value:
                    raise ValueError(f"blob {value[:12]} arrived damaged")
            except BaseException:
                Path(partial.name).unlink(missing_ok=True)
                raise
        Path(partial.name).rename(target)
        return target
