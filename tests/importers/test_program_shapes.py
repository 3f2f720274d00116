"""Whatever another program writes into a field, a record is read or refused: it never ends the run."""

import copy
import json

import pytest

from clawpipe.data.importers.formats.format import ODD_SHAPE, Format, guarded
from clawpipe.data.importers.formats.table import FORMATS
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Refusal
from clawpipe.data.importers.sources.lines import Line
from clawpipe.data.importers.strict_json import RefusedError
from tests.importers import test_chats as chats
from tests.importers import test_coding_logs as coding
from tests.importers import test_frameworks as frameworks
from tests.importers import test_openclaw_sessions as openclaw
from tests.importers import test_results as results
from tests.importers import test_traces as traces

ODD = (None, 1, -1.5, True, "x", "", [], {}, [None], [[]], [1], {"x": None})
CHATGPT = chats.chatgpt(
    chats.node("u", "root", "user", "q"),
    chats.node("t", "u", "assistant", {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}),
    chats.node("c", "t", "assistant", {"content_type": "code", "text": "1"}, recipient="python"),
    chats.node("r", "c", "tool", {"content_type": "execution_output", "text": "1"}, author="python"),
    chats.node("a", "r", "assistant", "a", metadata={"finish_details": {"type": "stop"}, "model_slug": "m"}),
    current="a",
)
WEBUI = chats.open_webui(
    {"id": "u", "parentId": None, "role": "user", "content": "q", "files": [{"type": "image", "url": "x"}]},
    {"id": "a", "parentId": "u", "role": "assistant", "content": "a", "model": "m", "annotation": {"rating": 1}},
    current="a",
)
ROUNDS = {
    "toolCallRounds": [{"response": "r", "toolCalls": [{"id": "c", "name": "n", "arguments": "{}"}], "thinking": {"text": "t"}}]
}
RECORDS = {
    "chatgpt": [CHATGPT],
    "claude-ai": [chats.CLAUDE],
    "open-webui": [WEBUI],
    "librechat": [{"conversationId": "c", "messages": chats.LIBRE, "options": {"promptPrefix": "p"}}],
    "oasst": [chats.OASST],
    "oasst-messages": list(chats.flat(chats.OASST["prompt"])),
    "gemini-cli": [coding.GEMINI | {"messages": [coding.ASKED, coding.CALLED, coding.ANSWERED]}, {"$set": {"lastUpdated": "2"}}],
    "copilot": [coding.vscode(response=[{"value": "a"}], vote=1, result={"metadata": ROUNDS | {"toolCallResults": {"c": {}}}})],
    "opencode": [coding.OPENCODE],
    "openhands": coding.OPENHANDS,
    "openclaw-session": [*openclaw.SESSION],
    "autogen": [{"messages": frameworks.TEAM, "stop_reason": "x"}],
    "langchain": [{"messages": frameworks.DUMPED}],
    "langchain-messages": frameworks.PLAIN,
    "smolagents": [{"steps": frameworks.STEPS, "state": "success"}],
    "litellm": [traces.LITELLM],
    "langsmith": [traces.LANGSMITH],
    "helicone": [traces.HELICONE],
    "braintrust": [traces.BRAINTRUST],
    "weave": [traces.WEAVE],
    "phoenix": [traces.PHOENIX],
    "bedrock": [traces.BEDROCK],
    "mlflow": [traces.MLFLOW],
    "inspect": [results.HEADER | {"samples": [results.SAMPLE]}],
    "atif": [results.ATIF],
}


def places(value, path=()):
    """The paths to every value in a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield (*path, name)
        yield from places(part, (*path, name))


def changed(records, path, value):
    made = copy.deepcopy(records)
    at = made
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return [one for one in made if isinstance(one, dict)]


def lines_of(records):
    data = [json.dumps(record).encode() for record in records]
    return [Line("log.jsonl", number, sum(map(len, data[: number - 1])) + number - 1, one) for number, one in enumerate(data, 1)]


@pytest.mark.parametrize("name", RECORDS)
def test_no_value_of_a_field_ends_the_run(name):
    records = RECORDS[name]
    reader = Reader()
    assert not any(isinstance(one, Refusal) for one in reader.lines(lines_of(records)))
    assert set(reader.reading.formats) == {name}
    for number, path in enumerate(places(records)):
        for value in (ODD[number % len(ODD)], ODD[(5 * number + 3) % len(ODD)], ODD[(7 * number + 6) % len(ODD)]):
            given = lines_of(changed(records, path, value))
            reader = Reader()
            list(reader.lines(given))
            assert reader.reading.lines == len(given)
            assert ODD_SHAPE not in reader.reading.rejected, (path, value)


def test_every_program_with_records_of_its_own_is_tried():
    tried_elsewhere = {"aider", "copilot-cli", "openhands-result", "inspect-sample", "smolagents-steps", "verifiers", "langfuse"}
    benchmarks = {"bfcl", "bfcl-result", "toolbench", "xlam", "tau-bench", "tau2-bench", "swe-agent", "mini-swe-agent"}
    assert {name for name, known in FORMATS.items() if known.about} == {*RECORDS, *tried_elsewhere, *benchmarks}


def test_a_reader_that_is_surprised_refuses_the_record():
    known = guarded(Format("new", lambda record: record["a"] > 1, read=lambda record: [record["b"]["c"]]))
    assert known.fits({}) is False
    assert known.fits({"a": 2}) is True
    assert known.read is not None
    with pytest.raises(RefusedError, match=ODD_SHAPE):
        known.read({"a": 2, "b": None})
    assert known.join is None
