"""What does the gateway add to a request? Prints latencies and requests per second and core, directly, through it, and LiteLLM.

    python benchmarks/gateway.py --json > benchmarks/gateway.json
    python benchmarks/gateway.py --litellm ~/litellm/bin/litellm --growth 100000

Claims, for an idle machine: at one connection the gateway adds at most 2 ms (p50) and 8 ms (p99), with capture and fsync on; it
answers at least 5 times as many requests a core as LiteLLM's proxy does; its memory does not grow with the number of requests. The
engine is the tests' fake of vLLM, which answers 64 words; requests are about 1 kB. Requests a core are requests by CPU seconds of
the proxy's process, so other work on the machine does not count. LiteLLM is its own program in its own environment:

    uv venv ~/litellm && uv pip install --python ~/litellm/bin/python 'litellm[proxy]'
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.service import answers
from clawpipe.core.system.ports import free_port
from clawpipe.serve.serving.access import listen

ROOT = Path(__file__).parents[1]
KEY = "sk-a-key-of-the-benchmark-0123456789"
TEXT = " ".join(f"word{number}" for number in range(64))
SYSTEM = "You are a helpful agent. " * 20
CONNECTIONS = (1, 32)
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Proxy:
    """What is asked: its address, and the process whose time counts."""

    name: str
    url: str
    pid: int

    def cpu(self) -> float:
        """Return the CPU seconds of the process."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> int:
        """Return its resident bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def asked(proxy: Proxy, requests: int, connections: int, stream: bool) -> JsonObject:
    """Ask many requests over some connections, and return latencies in milliseconds, and requests by second and by core."""
    waits: list[float] = []
    firsts: list[float] = []
    left = iter(range(requests))
    body = {"model": "agent", "stream": stream, "temperature": 1.0}
    body["messages"] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TEXT}]

    async def ask(session: aiohttp.ClientSession) -> None:
        for _ in left:
            began = time.perf_counter()
            async with session.post(f"{proxy.url}/v1/chat/completions", json=body) as reply:
                await reply.content.readany()
                firsts.append(time.perf_counter() - began)
                await reply.read()
                if reply.status != 200:
                    raise SystemExit(f"{proxy.name}: {reply.status}")
            waits.append(time.perf_counter() - began)

    headers = {"authorization": f"Bearer {KEY}", "x-session-id": "benchmark"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:
        cpu, began = proxy.cpu(), time.perf_counter()
        await asyncio.gather(*(ask(session) for _ in range(connections)))
        wall, used = time.perf_counter() - began, proxy.cpu() - cpu
    return {
        "proxy": proxy.name,
        "connections": connections,
        "stream": stream,
        "p50_ms": round(statistics.median(waits) * 1000, 3),
        "p99_ms": round(statistics.quantiles(waits, n=100)[98] * 1000, 3),
        "first_p50_ms": round(statistics.median(firsts) * 1000, 3),
        "per_second": round(requests / wall, 1),
        "per_core": round(requests / used, 1) if used else None,
    }


@contextmanager
def started(name: str, command: list[str], env: dict[str, str], url: str, health: str, log: Path) -> Iterator[Proxy]:
    """Run a server until the end of the block."""
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=os.environ | env, stdout=sink, stderr=sink)
    try:
        while not answers(f"{url}{health}"):
            if process.poll() is not None:
                raise SystemExit(f"{name} ended:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield Proxy(name, url, process.pid)
    finally:
        process.kill()
        process.wait()


@contextmanager
def engine(scratch: Path) -> Iterator[Proxy]:
    with listen("127.0.0.1", 0) as listener, (scratch / "fake.log").open("wb") as sink:
        os.set_inheritable(listener.fileno(), True)
        command = [sys.executable, str(ROOT / "tests" / "gateway" / "fake_vllm.py"), str(listener.fileno())]
        process = subprocess.Popen(command, pass_fds=(listener.fileno(),), stdout=sink, stderr=sink)
        try:
            yield Proxy("direct", f"http://127.0.0.1:{listener.getsockname()[1]}", process.pid)
        finally:
            process.kill()
            process.wait()


def gateway(upstream: str, scratch: Path) -> AbstractContextManager[Proxy]:
    port = free_port()
    command = [sys.executable, "-m", "clawpipe", "gateway", "--upstream", upstream, "--port", str(port)]
    env = {"CLAWPIPE_HOME": str(scratch / "home"), "CLAWPIPE_API_KEY": KEY}
    return started("gateway", command, env, f"http://127.0.0.1:{port}", "/healthz", scratch / "gateway.log")


def litellm(program: str, upstream: str, scratch: Path) -> AbstractContextManager[Proxy]:
    """LiteLLM's proxy with one model and a master key, which it insists on."""
    port, config = free_port(), scratch / "litellm.yaml"
    model = {"model_name": "agent", "litellm_params": {"model": "openai/agent", "api_base": f"{upstream}/v1", "api_key": "none"}}
    config.write_text(json.dumps({"model_list": [model]}))
    env = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    command = [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    return started("litellm", command, env, f"http://127.0.0.1:{port}", "/health/liveliness", scratch / "litellm.log")


def growth(proxy: Proxy, requests: int) -> JsonObject:
    """Return how much memory many requests leave behind, after a tenth of them has warmed the process up."""
    asyncio.run(asked(proxy, max(requests // 10, 100), 32, stream=False))
    before = proxy.memory()
    asyncio.run(asked(proxy, requests, 32, stream=False))
    return {"requests": requests, "before_bytes": before, "after_bytes": proxy.memory()}


def measured(options: argparse.Namespace, stack: ExitStack) -> JsonObject:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    direct = stack.enter_context(engine(scratch))
    proxies = [direct, stack.enter_context(gateway(direct.url, scratch))]
    if options.litellm:
        proxies.append(stack.enter_context(litellm(options.litellm, direct.url, scratch)))
    rows = []
    for proxy in proxies:
        asyncio.run(asked(proxy, 50, 1, stream=False))  # warm
        for connections in CONNECTIONS:
            for stream in (False, True):
                rows.append(asyncio.run(asked(proxy, options.requests, connections, stream)))
    grown = growth(proxies[1], options.growth) if options.growth else None
    load = os.getloadavg()[0]
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(load, 1),
        **summary(rows, grown),
        "growth": grown,
        "rows": rows,
    }


def summary(rows: list[JsonObject], grown: JsonObject | None) -> JsonObject:
    """Return the claims' figures: ratios and differences of one run."""

    def of(proxy: str, connections: int, stream: bool) -> JsonObject | None:
        return next(
            (row for row in rows if (row["proxy"], row["connections"], row["stream"]) == (proxy, connections, stream)), None
        )

    direct, through = of("direct", 1, False), of("gateway", 1, False)
    crowd, other = of("gateway", 32, False), of("litellm", 32, False)
    assert direct
    assert through
    assert crowd
    first = of("gateway", 1, True), of("direct", 1, True)
    assert first[0]
    assert first[1]
    return {
        "added_p50_ms": round(through["p50_ms"] - direct["p50_ms"], 3),
        "added_p99_ms": round(through["p99_ms"] - direct["p99_ms"], 3),
        "added_first_p50_ms": round(first[0]["first_p50_ms"] - first[1]["first_p50_ms"], 3),
        "requests_per_core": crowd["per_core"],
        "litellm_over_gateway_requests_per_core": round(crowd["per_core"] / other["per_core"], 2) if other else None,
        "memory_growth_100k": grown and round((grown["after_bytes"] - grown["before_bytes"]) * 100_000 / grown["requests"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000, help="of each row")
    parser.add_argument("--growth", type=int, default=0, help="requests after which memory is compared; 0 leaves it out")
    parser.add_argument("--litellm", help="the program of LiteLLM's proxy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        result = measured(options, stack)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for row in result["rows"]:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    print("  ".join(f"{name} {value}" for name, value in result.items() if name not in ("rows", "growth")))


if __name__ == "__main__":
    main()
