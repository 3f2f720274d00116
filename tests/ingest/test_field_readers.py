"""Each field that an importer or a capture keeps has a reader, and each reader is there and mentions it."""

import dataclasses
import importlib
import inspect
import re
from functools import reduce
from pathlib import Path

import msgspec
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.data.capture import records as captured
from clawpipe.data.importers import record
from clawpipe.data.importers.formats import openclaw
from clawpipe.data.ingest.intake.field_readers import COLUMNS, RECORDS
from clawpipe.data.ingest.intake.prepare import NAMES

ALL = [(kind, field, reader) for table in (RECORDS, COLUMNS) for kind, fields in table.items() for field, reader in fields.items()]


def fields_of(module):
    """The fields of the records of a module, by record."""
    found = {}
    for name, kind in vars(module).items():
        if inspect.isclass(kind) and kind.__module__ == module.__name__:
            if dataclasses.is_dataclass(kind):
                found[name] = {field.name for field in dataclasses.fields(kind)}
            elif issubclass(kind, msgspec.Struct):
                found[name] = set(kind.__struct_fields__)
    return found


@pytest.mark.parametrize("module", [record, openclaw, captured], ids=lambda module: module.__name__)
def test_every_field_of_a_record_has_a_reader(module):
    assert {name: set(RECORDS.get(name, ())) for name in fields_of(module)} == fields_of(module)


def test_every_column_that_ingest_writes_has_a_reader():
    assert {name: set(COLUMNS.get(name, ())) for name in NAMES} == {name: set(schema_of(name).names) for name in NAMES}


@pytest.mark.parametrize(("kind", "field", "reader"), ALL)
def test_a_reader_is_there_and_mentions_the_field(kind, field, reader):
    assert re.search(rf"\b{field}\b", source_of(reader)), f"{reader} does not read {kind}.{field}"


def source_of(reader):
    if "/" in reader:
        return Path(reader).read_text()
    module, _, name = reader.partition(":")
    return inspect.getsource(reduce(getattr, filter(None, name.split(".")), importlib.import_module(module)))
