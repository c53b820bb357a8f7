"""What the gateway costs per request, beside a bare starlette handler that returns fixed JSON.

    python benchmarks/gateway.py [--rounds 9] [--requests 200] [--litellm PYTHON] [--vllm PYTHON]

Servers run in processes of their own and are asked in turn, in rounds, over one connection each by
a client that does nothing but read. The CPU seconds of each server and its children are counted,
which a busy machine changes little, and the wall time beside them. Starlette and the gateway run on
the same web server. The gateway has a stub sampler, and all else is real: HTTP, JSON, template,
tokenizer, record. It is measured twice: with one question again and again, whose tokens the record
knows, and with a new question each time.

`--litellm` names a Python that has `litellm[proxy]`; its proxy answers from a mock model. `--vllm`
names one that has vLLM; its server draws one token from a tiny model with random weights.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BODY = {
    "model": "policy",
    "messages": [
        {"role": "system", "content": "You are a careful assistant. Answer in one sentence."},
        {"role": "user", "content": "000000: What is the capital of France, and who lives there?"},
    ],
    "max_tokens": 64,
}
ANSWER = "Paris has two million people."
TICKS = os.sysconf("SC_CLK_TCK")


def serve_bare(port: int) -> None:
    """A starlette handler with the answer that the gateway gives."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    message = {"role": "assistant", "content": ANSWER}
    usage = {"prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    fixed = {"id": "x", "object": "chat.completion", "created": 0, "model": "policy"}

    async def handler(request):
        await request.body()
        return JSONResponse({**fixed, "choices": [choice], "usage": usage})

    app = Starlette(routes=[Route("/v1/chat/completions", handler, methods=["POST"])])
    options = {"access_log": False, "lifespan": "off", "timeout_keep_alive": 300}
    options |= {"server_header": False, "date_header": False, "http": "h11", "loop": "asyncio"}
    uvicorn.run(app, port=port, log_level="error", **options)


def serve_gateway(port: int) -> None:
    """The gateway over a sampler that always draws the same."""
    from training_gym.models.weights import load_codec
    from training_gym.models.weights.tiny import byte_tokenizer
    from training_gym.rollouts.gateway.gateway import Gateway
    from training_gym.rollouts.policy import SampledPolicy
    from training_gym.rollouts.record import TokenRecord
    from training_gym.spec.sampling import Completion, SampleKey, Sampling

    folder = Path(tempfile.mkdtemp())
    byte_tokenizer((), 2048, chat_template=True).save_pretrained(folder)
    codec = load_codec(folder)
    ids = (*codec.encode(ANSWER), min(codec.stop_ids))
    zeros = (0,) * len(ids)
    drawn = Completion(
        token_ids=ids, logprobs=(-1.0,) * len(ids), versions=zeros, stop_reason="stop"
    )

    class Stub:
        async def generate(self, *_, **__):
            return drawn

    async def run() -> None:
        gateway = await Gateway.start(port=port)
        own = Sampling(max_tokens=512)
        key = SampleKey(seed=0, task="t")
        policy = SampledPolicy(Stub(), codec, TokenRecord(codec), key, own, session="s")
        print(gateway.open(policy, name="s", sampling=own).key, flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


class Server:
    """A server's process, asked over one connection."""

    def __init__(
        self,
        name: str,
        command: list[str],
        port: int,
        key: str | None,
        *,
        fresh: bool = False,
        env: dict[str, str] | None = None,
        **changes: object,
    ) -> None:
        self.name = name
        self.port = port
        self.fresh = fresh
        self.asked = 0
        said = subprocess.PIPE if key is None else subprocess.DEVNULL
        env = {**os.environ, **(env or {})}
        self.process = subprocess.Popen(command, stdout=said, text=True, env=env)
        if key is None:
            key = self.process.stdout.readline().strip()
        body = json.dumps({**BODY, **changes}).encode()
        self.request = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode() + body
        self.socket = self._connect()
        self.cpu_s: list[float] = []
        self.wall_s: list[float] = []

    def round(self, requests: int) -> None:
        cpu, wall = self._cpu_s(), time.perf_counter()
        for _ in range(requests):
            self._ask()
        self.wall_s.append((time.perf_counter() - wall) / requests)
        self.cpu_s.append((self._cpu_s() - cpu) / requests)

    def _ask(self) -> None:
        self.asked += self.fresh
        self.socket.sendall(self.request.replace(b"000000", b"%06d" % self.asked))
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._read()
        head, _, rest = data.partition(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], data[:300]
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(rest) < length:
            rest += self._read()

    def _read(self) -> bytes:
        data = self.socket.recv(65536)
        assert data, f"{self.name} closed the connection"
        return data

    def _connect(self) -> socket.socket:
        for _ in range(1200):
            try:
                return socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} does not listen")

    def _cpu_s(self) -> float:
        return sum(map(cpu_s, family(self.process.pid)))


def family(pid: int) -> list[int]:
    """A process and all below it."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for file in tasks for child in file.read_text().split()]
    return [pid, *(below for child in children for below in family(child))]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def litellm(python: str, port: int) -> Server:
    folder = Path(tempfile.mkdtemp())
    model = {"model": "openai/x", "api_key": "x", "mock_response": ANSWER}
    config = {"model_list": [{"model_name": "policy", "litellm_params": model}]}
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [str(Path(python).parent / "litellm"), "--config", str(folder / "config.yaml")]
    env = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    command += ["--port", str(port)]
    return Server("LiteLLM proxy, mock model", command, port, "x", env=env)


def vllm(python: str, port: int) -> Server:
    from training_gym.models.weights.tiny import tiny_model

    folder = Path(tempfile.mkdtemp())
    tiny_model(folder, "llama", hidden_size=256)  # its kernels want heads of 32 numbers or more
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--load-format", "dummy"]
    command += ["--served-model-name", "policy", "--max-model-len", "1024", "--enforce-eager"]
    command += ["--disable-uvicorn-access-log", "--port", str(port)]
    name = "vLLM's server, tiny model, one token"
    env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    env |= {"OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1"}
    return Server(name, command, port, "x", env=env, max_tokens=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--litellm")
    parser.add_argument("--vllm")
    parser.add_argument("--serve", choices=("bare", "gateway"))
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.serve:
        (serve_bare if options.serve == "bare" else serve_gateway)(options.port)
        return
    servers = []
    for name, kind, key, fresh in (
        ("starlette, fixed JSON", "bare", "x", False),
        ("gateway, one question", "gateway", None, False),
        ("gateway, new questions", "gateway", None, True),
    ):
        port = free_port()
        command = [sys.executable, __file__, "--serve", kind, "--port", str(port)]
        servers.append(Server(name, command, port, key, fresh=fresh))
    if options.litellm:
        servers.append(litellm(options.litellm, free_port()))
    if options.vllm:
        servers.append(vllm(options.vllm, free_port()))
    try:
        for server in servers:
            server.round(50)  # caches fill
            server.cpu_s.clear()
            server.wall_s.clear()
        for _ in range(options.rounds):
            for server in servers:
                server.round(options.requests)
    finally:
        for server in servers:
            server.process.kill()
    base = servers[0]
    print("| server | CPU ms a request | ratio | wall ms a request | ratio |")
    print("| --- | --- | --- | --- | --- |")
    for server in servers:
        cpu, wall = statistics.median(server.cpu_s), statistics.median(server.wall_s)
        pairs = zip(server.cpu_s, base.cpu_s, strict=True)
        ratio = statistics.median(own / bare for own, bare in pairs)
        walls = zip(server.wall_s, base.wall_s, strict=True)
        slower = statistics.median(own / bare for own, bare in walls)
        print(
            f"| {server.name} | {cpu * 1e3:.2f} | {ratio:.2f} | {wall * 1e3:.2f} | {slower:.2f} |"
        )


if __name__ == "__main__":
    main()
