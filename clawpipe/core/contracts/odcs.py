"""Read data contracts: the part of the Open Data Contract Standard 3.1.0 that clawpipe enforces.

A key that clawpipe does not check is an error, so that a contract promises nothing unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

import data_contracts
from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.errors import DataError, NotFoundError

SUFFIX = ".odcs.yaml"
EXTRA = "extra"  # the column in which contracts of mode evolve keep unknown columns
ROOT: Traversable = resources.files(data_contracts)
_ROW_RULE = "select count(*) from {object} where "


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)


class Options(_Part):
    """Width of a number (Rust's names) and limits of its values."""

    format: Literal["i32", "i64", "f32", "f64"] | None = None
    minimum: int | float | None = None
    exclusive_minimum: int | float | None = None
    maximum: int | float | None = None
    pattern: str | None = None
    min_length: int = 0
    min_items: int = 0


class AllowedValues(_Part):
    valid_values: tuple[str, ...]


class Allowed(_Part):
    """The standard's `invalidValues` check of a property."""

    type: Literal["library"] = "library"
    metric: Literal["invalidValues"]
    arguments: AllowedValues
    must_be: Literal[0]


class RowRule(_Part):
    """A rule about one row, written as the standard's SQL check, which counts faulty rows."""

    type: Literal["sql"]
    name: str
    description: str
    query: str
    must_be: Literal[0]

    @model_validator(mode="after")
    def _counts_rows(self) -> RowRule:
        if not self.query.startswith(_ROW_RULE):
            raise ValueError(f"rule {self.name!r} must begin with {_ROW_RULE!r}")
        return self

    @property
    def fault(self) -> str:
        """The SQL condition of a faulty row; NULL is not a fault, as in the query."""
        return self.query.removeprefix(_ROW_RULE)


class Property(_Part):
    """A column, a field of a struct, or an item of a list (without a name)."""

    name: str = ""
    description: str = ""
    logical_type: Literal["string", "integer", "number", "boolean", "object", "array"]
    logical_type_options: Options = Options()
    required: bool = False
    primary_key: bool = False
    primary_key_position: int = 0
    quality: tuple[Allowed, ...] = ()
    items: Property | None = None
    properties: tuple[Property, ...] = ()

    @model_validator(mode="after")
    def _is_complete(self) -> Property:
        if (self.logical_type == "array") != (self.items is not None):
            raise ValueError(f"{self.name!r}: an array, and nothing else, has items")
        if (self.logical_type == "object") != bool(self.properties):
            raise ValueError(f"{self.name!r}: an object, and nothing else, has properties")
        if (self.logical_type in ("integer", "number")) != (self.logical_type_options.format is not None):
            raise ValueError(f"{self.name!r}: a number, and nothing else, has a format")
        return self

    @property
    def allowed(self) -> tuple[str, ...]:
        """The allowed values; empty if all are."""
        return tuple(value for check in self.quality for value in check.arguments.valid_values)


class Table(_Part):
    name: str
    logical_type: Literal["object"]
    physical_type: Literal["table"]
    data_granularity_description: str
    properties: tuple[Property, ...]
    quality: tuple[RowRule, ...] = ()


Mode = Literal["freeze", "evolve", "discard_row", "discard_value"]


class ModeProperty(_Part):
    """The treatment of data that does not fit, written as the standard's custom property."""

    property: Literal["mode"]
    value: Mode
    description: str = ""


class Contract(_Part):
    """The contract of one dataset."""

    api_version: Literal["v3.1.0"]
    kind: Literal["DataContract"]
    id: str
    name: str
    version: str
    status: Literal["active", "deprecated"]
    description: dict[str, str]
    custom_properties: Annotated[tuple[ModeProperty, ...], Field(max_length=1)] = ()
    tables: Annotated[tuple[Table, ...], Field(alias="schema", min_length=1, max_length=1)]

    @model_validator(mode="after")
    def _can_evolve(self) -> Contract:
        room = any(column.name == EXTRA and column.logical_type == "string" and not column.required for column in self.columns)
        if self.mode == "evolve" and not room:
            raise ValueError(f"mode evolve needs a column {EXTRA!r}, a string that may be null")
        return self

    @property
    def mode(self) -> Mode:
        """The treatment of data that does not fit. Faulty rows are rejected in every mode. Modes differ in

        - an unknown column: an error under freeze and discard_row, kept in `extra` under evolve, dropped and counted under
          discard_value;
        - a missing nullable column: an error under freeze, else null;
        - a faulty value in a nullable column: null and counted under discard_value, else a fault of its row.
        """
        return self.custom_properties[0].value if self.custom_properties else "discard_row"

    @property
    def columns(self) -> tuple[Property, ...]:
        return self.tables[0].properties

    @property
    def rules(self) -> tuple[RowRule, ...]:
        return self.tables[0].quality

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that together are unique, in order."""
        keys = sorted((column.primary_key_position, column.name) for column in self.columns if column.primary_key)
        return tuple(name for _, name in keys)


def contract_names() -> list[str]:
    """Return the names of the datasets with a contract.

    Python's own folder beside them is not opened: whoever ran clawpipe first may have closed it to others.
    """
    return sorted(folder.name for folder in ROOT.iterdir() if folder.name[0].isalnum() and any(versions_in(folder, "v")))


def contract_versions(name: str) -> list[str]:
    """Return the major versions of a dataset's contract, oldest first.

    Raises:
        NotFoundError: the contract does not exist.
    """
    if name not in contract_names():
        raise NotFoundError(f"no contract is called {name!r}", fix=f"known: {', '.join(contract_names())}")
    return sorted(versions_in(folder_of(name), "v"), key=int)


def newest_version(name: str) -> str:
    """Return the major version under which rows are written.

    Raises:
        NotFoundError: the contract does not exist.
    """
    return contract_versions(name)[-1]


@cache
def load_contract(name: str, version: str | None = None) -> Contract:
    """Load the contract of a dataset, by default its newest major version.

    Raises:
        NotFoundError: the contract or version does not exist.
        DataError: the file is not a contract that clawpipe can enforce.
    """
    known = contract_versions(name)
    wanted = version or known[-1]
    if wanted not in known:
        raise NotFoundError(f"contract {name!r} has no version {wanted!r}", fix=f"known: {', '.join(known)}")
    text = (folder_of(name) / f"v{wanted}{SUFFIX}").read_text(encoding="utf-8")
    return parse_contract(text, where=f"{name}/v{wanted}{SUFFIX}")


def folder_of(name: str) -> Traversable:
    """Return the folder of a dataset's contract."""
    return ROOT / name


def parse_contract(text: str, where: str) -> Contract:
    """Parse a contract in YAML.

    Raises:
        DataError: the text is not YAML, or holds a key that clawpipe does not check.
    """
    try:
        return Contract.model_validate(parse_yaml(text))
    except yaml.YAMLError as error:
        raise DataError(f"not YAML: {error}", where) from None
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise DataError(
            f"not an enforceable contract: {problems}", where, "see the contracts beside it for what is understood"
        ) from None


def versions_in(folder: Traversable, prefix: str = "") -> Iterator[str]:
    """Return the versions from the file names of a folder."""
    files = folder.iterdir() if folder.is_dir() else ()
    names = (file.name for file in files if file.name.endswith(SUFFIX) and file.name.startswith(prefix))
    return (name.removesuffix(SUFFIX).removeprefix(prefix) for name in names)
