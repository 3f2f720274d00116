"""Real clients against `clawpipe serve` and `clawpipe gateway`: what works, and what is captured.

    python benchmarks/clients/run.py --quick --out benchmarks/clients.json --page docs/clients.md
    python benchmarks/clients/run.py openai "Claude Code"

Each client gets a folder of its own below `--envs`, with its packages in the newest versions that resolve, and a program in
`tries/` that does with it what its users do. `serve` has a model that says one sentence: there a free answer is this sentence, and
forced calls and JSON have to fit. Behind the gateway a scripted engine calls tools when the prompt says so. With `--quick` only the
clients that install in a minute are tried. An existing `--out` keeps its other clients. Ends with 1 if a try failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from servers import KEY, MODEL, Target, engine, gatewayed, proxied, served

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Turn

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TRIES = ("chat", "stream", "tools", "forced", "structured")
BEHIND = "behind LiteLLM"
_BEGIN, _END = "<!-- Written by benchmarks/clients/run.py --page -->", "<!-- end -->"
_SECONDS = 3600  # of all tries of a client


@dataclass(frozen=True)
class Client:
    """A client and how to try it.

    Attributes:
        script: its program in `tries/`.
        packages: what is installed; the first one's version stands in the table.
        by: the installer; of `make` the package is the target, which fixes the version.
        quick: whether it installs in a minute.
        targets: the servers that it is tried against.
        of: what of it stands in the table with its version, where that is not the first package.
    """

    name: str
    script: str
    packages: tuple[str, ...]
    by: Literal["pip", "npm", "make"] = "pip"
    quick: bool = True
    targets: tuple[str, ...] = ("serve", "gateway")
    of: str = ""

    @property
    def folder(self) -> str:
        return self.script.partition(".")[0]


CLIENTS = (
    Client("openai", "openai_sdk.py", ("openai",)),
    Client("OpenAI Agents SDK", "agents_sdk.py", ("openai-agents",)),
    Client("anthropic", "anthropic_sdk.py", ("anthropic",)),
    Client("LangChain", "langchain_sdk.py", ("langchain-openai",)),
    Client("instructor", "instructor_sdk.py", ("instructor",)),
    Client("pydantic-ai", "pydantic_ai_sdk.py", ("pydantic-ai-slim[openai,anthropic]",)),
    Client("smolagents", "smolagents_sdk.py", ("smolagents[openai]",)),
    Client(
        "Vercel AI SDK",
        "vercel.mjs",
        ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic", "zod"),
        "npm",
    ),
    Client("LiteLLM", "litellm_sdk.py", ("litellm",), quick=False),
    Client("LiteLLM's proxy as the engine", "openai_sdk.py", ("litellm[proxy]", "openai"), quick=False, targets=(BEHIND,)),
    # Its prompt is 77,000 bytes, each a token of the model of `serve`: minutes an answer on two cores.
    Client("Claude Code", "claude_code.py", ("@anthropic-ai/claude-code",), "npm", quick=False),
    Client("Open WebUI", "open_webui.py", ("open-webui",), quick=False),
    Client("Hermes", "hermes.py", (".venv-hermes/.installed",), "make", quick=False, targets=("gateway",), of="hermes-agent"),
    Client("OpenClaw", "openclaw.py", (".openclaw/.installed",), "make", quick=False, targets=("gateway",), of="openclaw"),
)


def install(client: Client, envs: Path) -> Path:
    """Return the folder of a client, in which its packages are installed."""
    if client.by == "make":
        subprocess.run(["make", client.packages[0]], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return (ROOT / client.packages[0]).parent
    folder = envs / ("litellm_proxy" if client.targets == (BEHIND,) else client.folder)
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text() == json.dumps(client.packages):
        return folder
    if client.by == "npm":
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", *client.packages]
    else:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *client.packages]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL if client.by == "pip" else None)
    stamp.write_text(json.dumps(client.packages))
    return folder


def version(client: Client, folder: Path) -> str:
    name = client.of or client.packages[0].partition("[")[0]
    if (folder / "node_modules").exists():
        return json.loads((folder / "node_modules" / name / "package.json").read_text())["version"]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([folder / "bin/python", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def command_of(client: Client, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the program that tries a client, and the variables that it needs."""
    script = HERE / "tries" / client.script
    if script.suffix == ".mjs":  # a module finds its packages beside itself
        place = folder / script.name
        place.write_text(script.read_text())
        return ["node", str(place)], {}
    if script.name in ("claude_code.py", "hermes.py", "openclaw.py", "open_webui.py"):  # programs, which need no Python of theirs
        return [sys.executable, str(script)], {"CLIENT": str(folder)}
    return [str(folder / "bin/python"), "-W", "ignore", str(script)], {}


def tried(client: Client, folder: Path, target: Target) -> JsonObject:
    """Try a client against a server. Returns whether each try went well, or why it did not, and what was captured."""
    before = len(target.turns())
    command, env = command_of(client, folder)
    words = [*command, target.url, KEY, MODEL, target.word]
    done = subprocess.run(words, env={**os.environ, **env}, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"try"')]
    if not lines:
        lines = [{"try": "chat", "ok": False, "why": " ".join(done.stderr.split())[-400:]}]
    found: JsonObject = {line["try"]: line["ok"] or line["why"] for line in lines}
    return found | ({"captured": captured(target.turns()[before:])} if target.home else {})


def captured(turns: Sequence[Turn]) -> JsonObject:
    """Return how many turns were captured, by interface, and of how many the tokens."""
    return {
        "turns": len(turns),
        "sessions": len({turn.session for turn in turns}),
        "with_tokens": sum(turn.answers[0].token_ids is not None for turn in turns),
        "held_to_a_grammar": sum(turn.turn_type == "side" for turn in turns),
        "complete": sum(turn.ending == "complete" for turn in turns),
        "apis": dict(sorted(Counter(turn.api for turn in turns).items())),
    }


def table(results: JsonObject) -> str:
    """Return the results as a table of Markdown."""
    lines = ["| client | version | chat | stream | tools | forced tool | structured output | captured |", f"|{'---|' * 8}"]
    for name, one in results["clients"].items():
        cells = [_cell(one, what) for what in TRIES]
        lines.append(f"| {name} | {one['version']} | {' | '.join(cells)} | {_captured(one)} |")
    return "\n".join(lines)


def _cell(one: JsonObject, what: str) -> str:
    found = {target: one[target][what] for target in ("serve", "gateway", BEHIND) if what in one.get(target, ())}
    wrong = [target for target, state in found.items() if state is not True]
    if not found:
        return "-"
    if wrong:
        return f"not with {' and '.join(wrong)}"
    return "yes" if len(found) == 2 or BEHIND in found else f"{next(iter(found))} only"


def _captured(one: JsonObject) -> str:
    [found] = [one[target]["captured"] for target in ("gateway", BEHIND) if target in one]
    apis = ", ".join(f"{count} {api}" for api, count in found["apis"].items())
    return f"{apis}; {found['with_tokens']} with tokens, {found['held_to_a_grammar']} as side turns"


def with_table(page: str, results: JsonObject) -> str:
    """Return a page whose table is that of the results."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"the page needs the lines {_BEGIN} and {_END}")
    return f"{before}{begin}\n\n{table(results)}\n\n{end}{after}"


def conditions() -> JsonObject:
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version(), "machine": platform.machine()}


def chosen(names: Sequence[str], quick: bool) -> list[Client]:
    wanted = [client for client in CLIENTS if (not names or client.name in names) and (client.quick or not quick)]
    if unknown := set(names) - {client.name for client in CLIENTS}:
        raise SystemExit(f"no such client: {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in CLIENTS)}")
    return wanted


def run(clients: Sequence[Client], envs: Path, note: Callable[[str, JsonObject], None]) -> None:
    """Try clients against their servers, and note the results of each as they come. The next client is installed meanwhile."""
    with tempfile.TemporaryDirectory(prefix="clawpipe-clients-") as name, ExitStack() as stack:
        place, ahead = Path(name), stack.enter_context(ThreadPoolExecutor(1))
        folders = [ahead.submit(install, client, envs) for client in clients]
        stack.callback(ahead.shutdown, cancel_futures=True)
        address = stack.enter_context(engine(place))
        targets = [stack.enter_context(served(place)), stack.enter_context(gatewayed(place, address))]
        for client, installed in zip(clients, folders, strict=True):
            folder = installed.result()
            with ExitStack() as own:
                if client.targets == (BEHIND,):
                    proxy = own.enter_context(proxied(place, folder / "bin/litellm", address))
                    targets.append(own.enter_context(gatewayed(place, proxy, BEHIND)))
                found = {target.name: tried(client, folder, target) for target in targets if target.name in client.targets}
            note(client.name, {"version": version(client, folder), **found})


def failures(results: JsonObject) -> list[str]:
    return [
        f"{name}, {target}, {what}: {state}"
        for name, one in results.items()
        for target in ("serve", "gateway", BEHIND)
        for what, state in one.get(target, {}).items()
        if what in TRIES and state is not True
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="clients; all of them by default")
    parser.add_argument("--quick", action="store_true", help="only those that install in a minute")
    parser.add_argument("--envs", type=Path, default=ROOT / ".clients", help="where the clients are installed")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--page", type=Path, help="page whose table is written from the results")
    arguments = parser.parse_args()
    out: Path | None = arguments.out
    kept = json.loads(out.read_text())["clients"] if out and out.exists() else {}
    now: JsonObject = {}

    def note(name: str, found: JsonObject) -> None:
        now[name] = kept[name] = found | {"conditions": conditions()}
        print(json.dumps({name: found}), flush=True)
        if out:
            listed = {client.name: kept[client.name] for client in CLIENTS if client.name in kept}
            out.write_text(json.dumps({"clients": listed}, indent=2) + "\n")

    run(chosen(arguments.names, arguments.quick), arguments.envs.resolve(), note)
    if arguments.page:
        arguments.page.write_text(with_table(arguments.page.read_text(), {"clients": kept}))
    print(table({"clients": now}))
    print("\n".join(failures(now)))
    return 1 if failures(now) else 0


if __name__ == "__main__":
    sys.exit(main())
