"""Does a gateway that is killed under load lose a turn that a client has seen the end of? Prints counts.

    python benchmarks/gateway_kills.py --kills 100 --json > benchmarks/gateway_kills.json

Claims: after each `kill -9` every acknowledged turn is in the segments with a correct CRC, and a new gateway starts and cuts off
what is torn. Sixteen clients ask at once, every third request a stream; a turn counts as acknowledged when its client has read the
whole answer. The engine is the tests' fake. A kill ends the process and not the kernel, so this tests the order of
acknowledgements, not the disk: tests/capture/test_segments.py drops what was not synced.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.service import answers
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port
from clawpipe.data.capture.records import Turn
from clawpipe.data.capture.segments import read_segment, segments, segments_dir
from clawpipe.serve.serving.access import listen

ROOT = Path(__file__).parents[1]
KEY = "sk-a-key-of-the-benchmark"
CLIENTS = 16


async def load(url: str, pid: int, first: int, kill_after: int) -> set[str]:
    """Ask until `kill_after` turns are acknowledged, then kill the gateway. Returns the texts of all that were acknowledged."""
    acknowledged: set[str] = set()
    numbers = iter(range(first, first + 1_000_000))

    async def ask(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            text = f"turn {number}"
            body = {"model": "agent", "messages": [{"role": "user", "content": text}], "stream": number % 3 == 0}
            try:
                async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
                    data = await reply.read()
            except aiohttp.ClientError:
                return
            if reply.status == 200 and (not body["stream"] or data.endswith(b"data: [DONE]\n\n")):
                acknowledged.add(text)
            if len(acknowledged) == kill_after:
                os.kill(pid, signal.SIGKILL)

    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
        await asyncio.gather(*(ask(session) for _ in range(CLIENTS)))
    return acknowledged


def gateway(home: Home, upstream: str) -> tuple[subprocess.Popen, str]:
    """Start a gateway, and return it with its address once it answers."""
    port = free_port()
    env = os.environ | {"CLAWPIPE_HOME": str(home.root), "CLAWPIPE_API_KEY": KEY}
    command = [sys.executable, "-m", "clawpipe", "gateway", "--upstream", upstream, "--port", str(port)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while not answers(f"{url}/healthz"):
        if process.poll() is not None:
            raise SystemExit(f"the gateway ended with {process.returncode}")
    return process, url


def captured(home: Home) -> set[str]:
    """Return the texts of the whole turns in the segments."""
    found = (one.record for path in segments(segments_dir(home)) for one in read_segment(path))
    return {record.request["messages"][0]["content"] for record in found if isinstance(record, Turn)}


def killed(home: Home, upstream: str, kills: int) -> JsonObject:
    """Kill a gateway many times under load, each time after another number of turns."""
    acknowledged: set[str] = set()
    for number in range(kills):
        process, url = gateway(home, upstream)
        acknowledged |= asyncio.run(load(url, process.pid, number * 1_000_000, 20 + 37 * number % 200))
        process.wait()
    process, _ = gateway(home, upstream)  # cuts off what the last one left
    process.terminate()
    process.wait()
    found = captured(home)
    return {
        "kills": kills,
        "acknowledged": len(acknowledged),
        "lost": len(acknowledged - found),
        "unacknowledged": len(found - acknowledged),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        listener = stack.enter_context(listen("127.0.0.1", 0))
        os.set_inheritable(listener.fileno(), True)
        fake = [sys.executable, str(ROOT / "tests" / "gateway" / "fake_vllm.py"), str(listener.fileno())]
        engine = subprocess.Popen(fake, pass_fds=(listener.fileno(),))
        stack.callback(engine.wait)
        stack.callback(engine.kill)
        result = killed(Home(Path(directory)), f"http://127.0.0.1:{listener.getsockname()[1]}", options.kills)
    print(json.dumps(result, indent=1) if options.json else "  ".join(f"{name} {value}" for name, value in result.items()))
    raise SystemExit(result["lost"] > 0)


if __name__ == "__main__":
    main()
