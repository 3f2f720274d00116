"""Compare two versions of a contract, and determine the step of the version number that the change needs.

A change is minor if every row of the older version is valid in the newer one: a new nullable column, and a rule about it. Any other
change is major, and needs a migration. Descriptions and the mode change no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from clawpipe.core.contracts.odcs import (
    SUFFIX,
    Contract,
    Property,
    RowRule,
    contract_names,
    folder_of,
    load_contract,
    parse_contract,
    versions_in,
)
from clawpipe.errors import NotFoundError

_FOLDER = "released"
Impact = Literal["none", "minor", "major"]
_ORDER: tuple[Impact, ...] = ("none", "minor", "major")


def version_number(version: str) -> tuple[int, ...]:
    """Return major, minor and patch, for sorting."""
    return tuple(map(int, version.split(".")))


def released_versions(name: str) -> list[str]:
    """Return the released versions of a dataset's contract, oldest first.

    Raises:
        NotFoundError: the contract does not exist.
    """
    if name not in contract_names():
        raise NotFoundError(f"no contract is called {name!r}", fix=f"known: {', '.join(contract_names())}")
    return sorted(versions_in(folder_of(name) / _FOLDER), key=version_number)


def load_released(name: str, version: str) -> Contract:
    """Load a released version of a contract, e.g. "1.0.0".

    Raises:
        NotFoundError: the contract or version does not exist.
    """
    known = released_versions(name)
    if version not in known:
        raise NotFoundError(f"contract {name!r} was not released as {version!r}", fix=f"released: {', '.join(known) or 'none'}")
    text = (folder_of(name) / _FOLDER / f"{version}{SUFFIX}").read_text(encoding="utf-8")
    return parse_contract(text, where=f"{name}/{_FOLDER}/{version}{SUFFIX}")


def find_contract(reference: str) -> Contract:
    """Find the contract `NAME` or `NAME@1` (in force), `NAME@1.0.0` (released), or that of a YAML file.

    Raises:
        NotFoundError: the contract, version or file does not exist.
        DataError: the file is not a contract that clawpipe can enforce.
    """
    if reference.endswith((".yaml", ".yml")):
        if not Path(reference).is_file():
            raise NotFoundError("no such file", reference)
        return parse_contract(Path(reference).read_text(encoding="utf-8"), reference)
    name, _, version = reference.partition("@")
    if "." not in version:
        return load_contract(name, version or None)
    return load_released(name, version)


class Change(NamedTuple):
    """One change; `place` is the path of a column, or the name of a rule."""

    place: str
    what: str
    impact: Impact


def changes(old: Contract, new: Contract) -> list[Change]:
    """Return all changes of columns, then of key, rules and mode, in the newer contract's order."""
    found = list(_column_changes(old, new))
    if old.key != new.key:
        found.append(Change(", ".join(new.key), f"the key was {', '.join(old.key) or 'none'}", "major"))
    found += _rule_changes(old, new)
    if old.mode != new.mode:
        found.append(Change("mode", f"{old.mode} is {new.mode} now", "none"))
    return found


def impact_of(found: Sequence[Change]) -> Impact:
    """Return the largest impact of any change."""
    return _ORDER[max((_ORDER.index(change.impact) for change in found), default=0)]


def permitted(old: str, new: str) -> Impact:
    """Return the largest impact that the step between two version numbers permits."""
    (old_major, old_minor, *_), (new_major, new_minor, *_) = version_number(old), version_number(new)
    if old_major != new_major:
        return "major"
    return "minor" if old_minor != new_minor else "none"


def allows(old: Contract, new: Contract) -> bool:
    """Whether the step of the version number permits all changes."""
    return _ORDER.index(impact_of(changes(old, new))) <= _ORDER.index(permitted(old.version, new.version))


def _column_changes(old: Contract, new: Contract) -> Iterator[Change]:
    before, now = ({column.name: column for column in contract.columns} for contract in (old, new))
    for name, column in now.items():
        if name in before:
            yield from _property_changes(before[name], column, name)
        else:
            may_be_null = not (column.required or column.primary_key)
            impact: Impact = "minor" if may_be_null and new.mode != "freeze" else "major"
            why = "" if may_be_null else ", required"
            yield Change(name, f"added{why}{', frozen' if new.mode == 'freeze' else ''}", impact)
    yield from (Change(name, "removed", "major") for name in before if name not in now)


def _property_changes(old: Property, new: Property, path: str) -> Iterator[Change]:
    for what, was, now in _terms(old, new):
        if was != now:
            yield Change(path, f"{what}: {_shown(was)} is {_shown(now)} now", "major")
    if old.items and new.items:
        yield from _property_changes(old.items, new.items, f"{path}[]")
    before, now = ({field.name: field for field in part.properties} for part in (old, new))
    for name, field in now.items():
        if name in before:
            yield from _property_changes(before[name], field, f"{path}.{name}")
        else:
            yield Change(f"{path}.{name}", "added to a struct, which files of the older version lack", "major")
    yield from (Change(f"{path}.{name}", "removed", "major") for name in before if name not in now)


def _terms(old: Property, new: Property) -> Iterator[tuple[str, object, object]]:
    yield "type", old.logical_type, new.logical_type
    yield "required", old.required, new.required
    yield "allowed", old.allowed, new.allowed
    was, now = (part.logical_type_options.model_dump() for part in (old, new))
    yield from ((name, was[name], now[name]) for name in was)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _rule_changes(old: Contract, new: Contract) -> Iterator[Change]:
    added = {column.name for column in new.columns} - {column.name for column in old.columns}
    before, now = ({rule.name: rule for rule in contract.rules} for contract in (old, new))
    for name, rule in now.items():
        if name not in before or before[name].query != rule.query:
            what = "rule changed" if name in before else "rule added"
            about = sorted(column for column in added if _mentions(rule, column))
            yield Change(name, what + (f", about {', '.join(about)}" if about else ""), "minor" if about else "major")
    yield from (Change(name, "rule removed", "major") for name in before if name not in now)


def _mentions(rule: RowRule, column: str) -> bool:
    return re.search(rf"\b{re.escape(column)}\b", rule.fault) is not None
