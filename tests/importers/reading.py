"""Read whole files into memory."""

from dataclasses import dataclass, field

from clawpipe.data.importers.read.read import read_stream
from clawpipe.data.importers.read.reading import Reading, Refusal
from clawpipe.data.importers.record import Conversation, Preference, Prompt


@dataclass
class ReadFiles(Reading):
    """Counts with the records and the refused lines."""

    conversations: list[Conversation] = field(default_factory=list)
    preferences: list[Preference] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def read_files(paths, format="auto"):
    """Read all files, folders and patterns."""
    reading = ReadFiles()
    lists = {
        Conversation: reading.conversations,
        Preference: reading.preferences,
        Prompt: reading.prompts,
        Refusal: reading.refused,
    }
    for record in read_stream(paths, format, reading):
        lists[type(record)].append(record)
    return reading
