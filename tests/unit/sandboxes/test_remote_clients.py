"""The adapters through the providers' real clients, against a server of our own.

Daytona and E2B: the installed client speaks HTTP to a local server that answers as the service
would, its sandboxes being local ones. Modal's client speaks gRPC, so there a double with the real
client's signatures stands in for it. Nothing here has been run against the real services.
"""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import inspect
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from training_gym.sandboxes.remote.daytona import DaytonaProvider
from training_gym.sandboxes.remote.e2b import E2BProvider
from training_gym.sandboxes.remote.modal import ModalProvider
from training_gym.sandboxes.zygote.provider import ZygoteProvider
from training_gym.spec.sandboxes import (
    DockerfileImage,
    ExecRequest,
    FolderImage,
    Network,
    OciImage,
    QuotaExceeded,
    RateLimited,
    SandboxDied,
    SandboxSpec,
    SandboxUnsupported,
    SnapshotImage,
    StartFailed,
    StartTimeout,
)
from training_gym.testing import sandbox_contract as contract
from training_gym.testing.sandbox_contract import commands, files

CLAUSES = [
    files.keeps_files,
    files.finds_by_tags_and_destroys,
    commands.tells_how_commands_end,
    commands.hands_over_what_was_given,
    commands.ends_commands_in_time,
    files.snapshots_and_forks,
    commands.runs_in_the_background,
]
each_clause = pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)


class Cloud:
    """What a provider keeps: local sandboxes under ids of its own. Lives in the test's loop."""

    def __init__(self, user="user"):
        self.user = user
        self.zygote = ZygoteProvider()
        self.alive, self.labels, self.requests, self.snapshots = {}, {}, [], {}
        self.refusal = None
        """Status, headers and body that the next creations get."""
        self.lock = asyncio.Lock()

    async def create(self, tags, env=None, snapshot=None):
        image = {"image": SnapshotImage(id=snapshot)} if snapshot else {}
        inner = await self.zygote.create(SandboxSpec(user=self.user, env=env or {}, **image))
        name = f"far-{inner.id}"
        self.alive[name], self.labels[name] = inner, tags
        return name

    async def run(self, name, script):
        process = await self.alive[name].start(ExecRequest(argv=("sh", "-c", script)))
        written = b""
        async for event in process.output():
            if event.stream == "stdout":
                written += event.data
        return (await process.wait()).exit_code, written

    async def put(self, name, path, data):
        await self.alive[name].write_file(path, data)

    async def snapshot(self, name):
        return (await self.alive[name].snapshot()).id

    async def end(self, name):
        if name not in self.alive:
            return False
        del self.labels[name]
        await self.alive.pop(name).destroy()
        return True

    def listed(self, wanted):
        return [name for name, tags in self.labels.items() if wanted.items() <= tags.items()]


class Service:
    """A local HTTP server around a cloud; subclasses say what it answers."""

    def __init__(self, cloud, loop):
        self.cloud, self.loop = cloud, loop
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def any(self):
                body = self._body()
                service.cloud.requests.append((self.command, self.path, body))
                status, headers, answer = service.answer(
                    self.command, urlsplit(self.path), body, self.headers
                )
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                if status != 204:
                    self.send_header("content-length", str(len(answer)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(answer)

            do_GET = do_POST = do_DELETE = do_PUT = any

            def _body(self):
                if self.headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length") or 0))
                parts = []
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def as_json(value, status=200, **headers):
    return status, {"content-type": "application/json", **headers}, json.dumps(value).encode()


def uploaded(body, headers):
    """File contents of a multipart request by field name, and the fields themselves."""
    head = f"content-type: {headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    return {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
        for part in message.iter_parts()
    }


class DaytonaService(Service):
    """The paths of Daytona's API and of its toolbox."""

    def answer(self, method, url, body, headers):
        path = url.path
        if method == "POST" and path == "/sandbox":
            if self.cloud.refusal:
                return self.cloud.refusal
            asked = json.loads(body)
            name = self.do(self.cloud.create(asked["labels"], asked.get("env")))
            return as_json(self.sandbox(name))
        if method == "GET" and path == "/sandbox":
            wanted = json.loads(parse_qs(url.query)["labels"][0])
            return as_json({"items": [self.sandbox(n) for n in self.cloud.listed(wanted)]})
        name = path.split("/")[2]
        if name not in self.cloud.alive:
            error = {"message": f"Sandbox {name} not found", "statusCode": 404}
            return as_json(error, status=404)
        if path == f"/sandbox/{name}":
            if method == "DELETE":
                self.do(self.cloud.end(name))
            return as_json(self.sandbox(name))
        if path == f"/toolbox/{name}/process/execute":
            code, output = self.do(self.cloud.run(name, json.loads(body)["command"]))
            return as_json({"exitCode": code, "result": output.decode()})
        assert path == f"/toolbox/{name}/files/bulk-upload", path
        fields = uploaded(body, headers)
        target = fields["files[0].path"].decode()
        self.do(self.cloud.put(name, target, fields["files[0].file"]))
        return as_json({})

    def sandbox(self, name):
        fixed = {"organizationId": "o", "user": "daytona", "env": {}, "public": False, "gpu": 0}
        more = {"networkBlockAll": True, "target": "us", "cpu": 1, "memory": 1, "disk": 3}
        return {
            **fixed,
            **more,
            "id": name,
            "name": name,
            "kvm": False,
            "state": "started",
            "labels": self.cloud.labels.get(name, {}),
            "createdAt": "2026-01-01T00:00:00.000Z",
            "toolboxProxyUrl": f"{self.url}/toolbox",
        }


def envelope(flags, value):
    data = json.dumps(value).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


class E2BService(Service):
    """The paths of E2B's API and of the daemon in its sandboxes (Connect with JSON)."""

    def answer(self, method, url, body, headers):
        path = url.path
        if path == "/v2/sandboxes" and method == "POST":
            return self.create(json.loads(body))
        if path == "/v2/sandboxes":
            query = parse_qs(url.query).get("metadata", [""])[0]
            wanted = {unquote(k): unquote(v[0]) for k, v in parse_qs(query).items()}
            return as_json([self.listed(name) for name in self.cloud.listed(wanted)])
        if path == "/process.Process/Start":
            return self.start(body, headers)
        if path == "/files":
            (target,) = parse_qs(url.query)["path"]
            (data,) = uploaded(body, headers).values()
            self.do(self.cloud.put(headers["e2b-sandbox-id"], target, data))
            return as_json([{"path": target, "name": target, "type": "file"}])
        if path.startswith("/templates/"):
            self.do(self.cloud.zygote.delete_snapshot(unquote(path.split("/")[2])))
            return 204, {}, b""
        name = path.split("/")[2]
        if path.endswith("/snapshots"):
            snapshot = self.do(self.cloud.snapshot(name))
            return as_json({"snapshotID": snapshot, "names": []}, status=201)
        ended = self.do(self.cloud.end(name))
        absent = {"code": 404, "message": f"sandbox {name} not found"}
        return (204, {}, b"") if ended else as_json(absent, status=404)

    def create(self, asked):
        if self.cloud.refusal:
            return self.cloud.refusal
        template = asked["templateID"]
        name = self.do(
            self.cloud.create(
                asked.get("metadata", {}),
                asked.get("envVars"),
                None if template == "base" else template,
            )
        )
        made = {"sandboxID": name, "templateID": template, "clientID": "c"}
        return as_json({**made, "envdVersion": "0.5.0", "envdAccessToken": "t"}, status=201)

    def listed(self, name):
        return {
            "sandboxID": name,
            "templateID": "base",
            "clientID": "c",
            "metadata": self.cloud.labels[name],
            "startedAt": "2026-01-01T00:00:00Z",
            "endAt": "2026-01-01T01:00:00Z",
            "state": "running",
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 512,
            "envdVersion": "0.5.0",
        }

    def start(self, body, headers):
        process = json.loads(body[5:])["process"]
        code, output = self.do(self.cloud.run(headers["e2b-sandbox-id"], process["args"][-1]))
        events = [
            {"start": {"pid": 1}},
            {"data": {"stdout": base64.b64encode(output).decode()}},
            {"end": {"exitCode": code, "exited": True, "status": f"exit status {code}"}},
        ]
        answer = b"".join(envelope(0, {"event": event}) for event in events) + envelope(2, {})
        return 200, {"content-type": "application/connect+json"}, answer


@pytest.fixture
def daytona(monkeypatch):
    pytest.importorskip("daytona")
    monkeypatch.setenv("DAYTONA_API_KEY", "key")
    monkeypatch.setenv("DAYTONA_USE_DEPRECATED_POLLING", "true")  # no event stream to speak

    def serve(service):
        monkeypatch.setenv("DAYTONA_API_URL", service.url)
        return DaytonaProvider()

    return lambda story: _play(DaytonaService, Cloud(), serve, story)


@pytest.fixture
def e2b(monkeypatch):
    pytest.importorskip("e2b")
    monkeypatch.setenv("E2B_API_KEY", "e2b_" + "0" * 40)
    monkeypatch.setenv("E2B_HTTP_VERSION", "1.1")

    def serve(service):
        monkeypatch.setenv("E2B_API_URL", service.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", service.url)
        return E2BProvider()

    return lambda story: _play(E2BService, Cloud(user="root"), serve, story)


def _play(kind, cloud, serve, story):
    async def main():
        await (await cloud.zygote.create(SandboxSpec(user=cloud.user))).destroy()
        service = kind(cloud, asyncio.get_running_loop())
        provider = serve(service)
        try:
            return await story(provider, cloud)
        finally:
            await provider.close()
            await asyncio.to_thread(service.close)
            await cloud.zygote.close()

    return asyncio.run(main())


pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the clients and what they use
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


# ---------------------------------------------------------------- Daytona


@each_clause
def test_daytona_keeps_the_contract(daytona, clause):
    daytona(lambda provider, cloud: clause(provider, SandboxSpec()))


def test_daytona_is_asked_for_what_the_spec_says(daytona):
    async def story(provider, cloud):
        spec = SandboxSpec(
            image=OciImage(reference="python:3.12"),
            network=Network(mode="allowlist", allowed_hosts=("pypi.org", "*.example.org")),
            tags={"run": "r1"},
        )
        async with await provider.create(spec):
            pass
        return json.loads(cloud.requests[0][2])

    asked = daytona(story)
    assert "FROM python:3.12" in asked["buildInfo"]["dockerfileContent"]
    assert asked["domainAllowList"] == "pypi.org,*.example.org"
    assert asked["labels"]["run"] == "r1"
    assert (asked["cpu"], asked["memory"], asked["disk"]) == (1, 1, 1)
    assert asked["autoDeleteInterval"] == 0
    assert asked["ttlMinutes"] == 60


@pytest.mark.parametrize(
    ("status", "message", "headers", "kind"),
    [
        (429, "Rate limit exceeded", {"retry-after": "7"}, RateLimited),
        (403, "Total CPU limit exceeded. Maximum allowed: 10.", {}, QuotaExceeded),
        (400, "Total memory quota exceeded", {}, QuotaExceeded),
        (401, "Invalid credentials", {}, SandboxUnsupported),
        (404, "Snapshot nope not found", {}, StartFailed),
        (500, "Internal server error", {}, StartTimeout),
    ],
)
def test_daytona_refusals_are_typed(daytona, status, message, headers, kind):
    async def story(provider, cloud):
        cloud.refusal = as_json({"message": message, "statusCode": status}, status, **headers)
        return await contract.raises(kind, provider.create(SandboxSpec()))

    error = daytona(story)
    assert type(error) is kind
    if kind is RateLimited:
        assert error.retry_after_s == 7.0


# ---------------------------------------------------------------- E2B


@each_clause
def test_e2b_keeps_the_contract(e2b, clause):
    e2b(lambda provider, cloud: clause(provider, SandboxSpec(user="root")))


def test_e2b_is_asked_for_what_the_spec_says(e2b):
    async def story(provider, cloud):
        network = Network(mode="allowlist", allowed_hosts=("pypi.org",))
        spec = SandboxSpec(network=network, tags={"run": "r1"}, user="root")
        async with await provider.create(spec):
            pass
        await contract.raises(
            SandboxUnsupported, provider.create(SandboxSpec(image=OciImage(reference="x")))
        )
        return json.loads(cloud.requests[0][2])

    asked = e2b(story)
    assert asked["metadata"] == {"run": "r1"}
    assert asked["timeout"] == 3600
    assert asked["network"]["allowOut"] == ["pypi.org"]
    assert asked["network"]["denyOut"] == ["0.0.0.0/0"]


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (429, "you are creating too fast", RateLimited),
        (429, "you have reached the maximum number of concurrent E2B sandboxes", QuotaExceeded),
        (401, "invalid API key", SandboxUnsupported),
        (404, "template 'nope' not found", StartFailed),
        (500, "oops", StartTimeout),
    ],
)
def test_e2b_refusals_are_typed(e2b, status, message, kind):
    async def story(provider, cloud):
        cloud.refusal = as_json({"code": status, "message": message}, status)
        return await contract.raises(kind, provider.create(SandboxSpec(user="root")))

    assert type(e2b(story)) is kind


def test_a_sandbox_that_vanished_is_told_so(daytona):
    async def story(provider, cloud):
        sandbox = await provider.create(SandboxSpec())
        await cloud.end(sandbox.id)
        await contract.raises(SandboxDied, sandbox.exec(ExecRequest(argv=("true",))))

    daytona(story)


# ---------------------------------------------------------------- Modal


def speaking(real, double):
    """An object with `.aio` that takes only what the real client's method takes."""
    signature = inspect.signature(real)

    def aio(*arguments, **named):
        has_self = next(iter(signature.parameters), "") == "self"
        signature.bind(*([None] if has_self else []), *arguments, **named)
        return double(*arguments, **named)

    return SimpleNamespace(aio=aio)


class ModalDouble:
    """`modal` as far as the adapter uses it, with the real one's signatures and errors."""

    def __init__(self, modal, cloud):
        self.exception, self.real, self.cloud = modal.exception, modal, cloud
        self.refusal = None
        self.asked = {}
        real = modal.Sandbox
        self.Sandbox = SimpleNamespace(
            create=speaking(real.create, self.create),
            from_id=speaking(real.from_id, self.from_id),
            list=speaking(real.list, self.list),
        )
        self.App = SimpleNamespace(lookup=speaking(modal.App.lookup, self.lookup))
        self.Image = SimpleNamespace(
            debian_slim=lambda: None, from_registry=lambda tag: tag, from_id=SnapshotName
        )

    async def lookup(self, name, **more):
        assert isinstance(self.real.App.app_id, property)
        return SimpleNamespace(app_id="ap-1")

    async def create(self, **asked):
        self.asked = asked
        if self.refusal:
            raise self.refusal
        image = asked["image"]
        snapshot = image.id if isinstance(image, SnapshotName) else None
        return self.sandbox(await self.cloud.create(asked["tags"], asked["env"], snapshot))

    async def from_id(self, name):
        if name not in self.cloud.alive:
            raise self.exception.NotFoundError(f"no sandbox {name}")
        return self.sandbox(name)

    async def list(self, *, app_id, tags):
        for name in self.cloud.listed(tags or {}):
            yield self.sandbox(name)

    def sandbox(self, name):
        real, cloud = self.real.Sandbox, self.cloud

        async def execute(*argv, timeout, text):
            code, output = await cloud.run(name, argv[-1])
            return SimpleNamespace(
                stdout=SimpleNamespace(read=speaking(lambda self: 0, later(output.decode()))),
                wait=speaking(lambda self: 0, later(code)),
            )

        async def write_bytes(data, path):
            await cloud.put(name, path, data)

        async def snapshot():
            return SimpleNamespace(object_id=await cloud.snapshot(name))

        async def terminate(*, wait):
            if not await cloud.end(name):
                raise self.exception.NotFoundError("gone")

        async def tags():
            return cloud.labels[name]

        from modal.sandbox._filesystem import _SandboxFilesystem

        return SimpleNamespace(
            object_id=name,
            exec=speaking(real.exec, execute),
            filesystem=SimpleNamespace(
                write_bytes=speaking(_SandboxFilesystem.write_bytes, write_bytes)
            ),
            snapshot_filesystem=speaking(real.snapshot_filesystem, snapshot),
            terminate=speaking(real.terminate, terminate),
            get_tags=speaking(real.get_tags, tags),
        )


class SnapshotName:
    def __init__(self, name):
        self.id = name


def later(value):
    async def give():
        return value

    return give


@pytest.fixture
def modal(monkeypatch):
    real = pytest.importorskip("modal")
    from training_gym.sandboxes.remote import modal as adapter

    def play(story):
        cloud = Cloud(user="root")
        double = ModalDouble(real, cloud)
        monkeypatch.setattr(adapter, "_module", lambda: double)

        async def main():
            try:
                return await story(ModalProvider(), double)
            finally:
                await cloud.zygote.close()

        return asyncio.run(main())

    return play


@each_clause
def test_modal_keeps_the_contract_in_the_real_clients_words(modal, clause):
    modal(lambda provider, double: clause(provider, SandboxSpec(user="root")))


def test_modal_is_asked_for_what_the_spec_says(modal):
    async def story(provider, double):
        network = Network(mode="allowlist", allowed_hosts=("pypi.org",))
        image = OciImage(reference="python:3.12")
        spec = SandboxSpec(image=image, network=network, tags={"run": "r1"}, user="root")
        async with await provider.create(spec):
            pass
        await contract.raises(
            SandboxUnsupported, provider.create(SandboxSpec(image=FolderImage(path="/x")))
        )
        return double.asked

    asked = modal(story)
    assert asked["image"] == "python:3.12"
    assert asked["outbound_domain_allowlist"] == ["pypi.org"]
    assert (asked["cpu"], asked["memory"]) == ((1.0, 1.0), (512, 512))
    assert asked["tags"] == {"run": "r1"}


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("ResourceExhaustedError", "too fast", RateLimited),
        ("ResourceExhaustedError", "workspace has reached the maximum number", QuotaExceeded),
        ("AuthError", "token is invalid", SandboxUnsupported),
        ("InvalidError", "no such region", StartFailed),
        ("ServiceError", "unavailable", StartTimeout),
        ("ConnectionError", "", StartTimeout),
    ],
)
def test_modal_refusals_are_typed(modal, name, text, kind):
    async def story(provider, double):
        double.refusal = getattr(double.exception, name)(text)
        return await contract.raises(kind, provider.create(SandboxSpec()))

    assert type(modal(story)) is kind


def test_modal_builds_images_by_the_names_its_client_has():
    real = pytest.importorskip("modal")
    inspect.signature(real.Image.from_registry).bind("python:3.12")
    inspect.signature(real.Image.from_id).bind(real.Image, "im-1")
    inspect.signature(real.Image.from_dockerfile).bind("Dockerfile", context_dir=".")
    assert DockerfileImage(context="/x").dockerfile == "Dockerfile"


# ---------------------------------------------------------------- without client or credentials


@pytest.mark.parametrize(
    ("kind", "module", "variables"),
    [
        (E2BProvider, "e2b", ["E2B_API_KEY"]),
        (DaytonaProvider, "daytona", ["DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN"]),
        (ModalProvider, "modal", ["MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"]),
    ],
)
def test_what_is_missing_is_said_in_two_lines(kind, module, variables, monkeypatch, tmp_path):
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "absent"))

    async def main():
        return (
            await contract.raises(SandboxUnsupported, kind().create(SandboxSpec(user="user"))),
            await kind().probe(),
        )

    monkeypatch.setitem(__import__("sys").modules, module, None)
    error, (report,) = asyncio.run(main())
    assert re.search(r"not installed\npip install 'training-gym\[\w+\]'$", str(error))
    assert not report.works
    monkeypatch.undo()
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "absent"))
    pytest.importorskip(module)
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    error, (report,) = asyncio.run(main())
    assert "credentials" in str(error)
    assert variables[0] in error.fix
    assert report.fix == error.fix
