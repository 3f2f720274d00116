"""Write records as a file, read it, and say in short what came."""

import json

from tests.importers.reading import read_files

CALL = "call"


def read(tmp_path, *records, name="log.jsonl", format="auto"):
    """Read records: one object in a `.json` file, else one a line."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return read_files([str(tmp_path)], format)


def short(conversation):
    """Each message as a role with its text, or with its calls."""
    return [_short(message) for message in conversation.messages]


def _short(message):
    calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return (message.role, " ".join(filter(None, [message.content.strip(), *calls])))


def only(reading):
    """The single conversation that was read, without a line that was refused."""
    assert reading.reasons() == {}
    [conversation] = reading.conversations
    return conversation
