"""Claude Code, headless. It streams each answer, and its tools run in an empty directory. `CLIENT` is its folder."""

import json
import os
import subprocess
import tempfile

from tried import CALLS, KEY, MODEL, ROOT, check_sky, run

SETTINGS = {
    "ANTHROPIC_BASE_URL": ROOT,
    "ANTHROPIC_AUTH_TOKEN": KEY,
    "ANTHROPIC_MODEL": MODEL,
    "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "100",
    "DISABLE_AUTOUPDATER": "1",
    "API_TIMEOUT_MS": "1500000",
}


def claude(prompt, *words, timeout=1500):
    """Return the lines of JSON that it prints."""
    with tempfile.TemporaryDirectory() as directory:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))}
        command = [
            f"{os.environ['CLIENT']}/node_modules/.bin/claude",
            "-p",
            prompt,
            "--model",
            MODEL,
            "--output-format",
            "stream-json",
            "--verbose",
            *words,
        ]
        done = subprocess.run(
            command,
            cwd=directory,
            env=env | SETTINGS | {"HOME": directory},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    assert done.returncode == 0, done.stdout[-600:] + done.stderr[-300:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def result(lines):
    [last] = [line for line in lines if line.get("type") == "result"]
    assert not last["is_error"], last
    return last


def stream():
    lines = claude("Say hello.", "--include-partial-messages")
    assert result(lines)["result"] is not None
    deltas = [line for line in lines if (line.get("event") or {}).get("type") == "content_block_delta"]
    assert len(deltas) > 1, f"{len(deltas)} parts"


def tools():
    lines = claude('call Bash {"command": "echo $((6 * 7))", "description": "six times seven"}', "--allowedTools", "Bash")
    assert "42" in result(lines)["result"] or not CALLS, result(lines)


def structured():
    schema = {"type": "object", "properties": {"sky": {"type": "string", "enum": ["dry", "wet"]}}, "required": ["sky"]}
    prompt = 'call StructuredOutput {"sky": "dry"}'  # the tool by which it is given
    check_sky(result(claude(prompt, "--json-schema", json.dumps(schema)))["structured_output"])


run({"stream": stream, "tools": tools} | ({"structured": structured} if CALLS else {}))
