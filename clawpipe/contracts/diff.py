"""What changed between two versions of a contract, and which step of the version number that takes.

Minor is what leaves every row of the older version a row of the newer one: another column that may be null, and a rule about it.
Anything else is major, and needs a migration. Words, and what the mode says about data that does not fit, change no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from clawpipe.contracts.odcs import (
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
    """Major, minor and patch, to be ordered by."""
    return tuple(map(int, version.split(".")))


def released_versions(name: str) -> list[str]:
    """Versions of a dataset's contract that rows may have been written under, oldest first.

    Raises:
        NotFoundError: no such contract.
    """
    if name not in contract_names():
        raise NotFoundError(f"no contract is called {name!r}", fix=f"known: {', '.join(contract_names())}")
    return sorted(versions_in(folder_of(name) / _FOLDER), key=version_number)


def load_released(name: str, version: str) -> Contract:
    """The contract as it was released under a full version, e.g. "1.0.0".

    Raises:
        NotFoundError: no such contract or version.
    """
    known = released_versions(name)
    if version not in known:
        raise NotFoundError(f"contract {name!r} was not released as {version!r}", fix=f"released: {', '.join(known) or 'none'}")
    text = (folder_of(name) / _FOLDER / f"{version}{SUFFIX}").read_text(encoding="utf-8")
    return parse_contract(text, where=f"{name}/{_FOLDER}/{version}{SUFFIX}")


def find_contract(reference: str) -> Contract:
    """The contract behind `NAME` or `NAME@1` (the one in force), `NAME@1.0.0` (a released one) or the path of a YAML file.

    Raises:
        NotFoundError: no such contract, version or file.
        DataError: the file is no contract that clawpipe can enforce.
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
    """`place` is a column by its path, or a rule by its name."""

    place: str
    what: str
    impact: Impact


def changes(old: Contract, new: Contract) -> list[Change]:
    """Everything that differs in what a row must be, columns first, in the newer contract's order."""
    found = list(_column_changes(old, new))
    if old.key != new.key:
        found.append(Change(", ".join(new.key), f"the key was {', '.join(old.key) or 'none'}", "major"))
    found += _rule_changes(old, new)
    if old.mode != new.mode:
        found.append(Change("mode", f"{old.mode} is {new.mode} now", "none"))
    return found


def impact_of(found: Sequence[Change]) -> Impact:
    """The largest impact of any change."""
    return _ORDER[max((_ORDER.index(change.impact) for change in found), default=0)]


def permitted(old: str, new: str) -> Impact:
    """The largest impact that the step from one version number to the other stands for."""
    (old_major, old_minor, *_), (new_major, new_minor, *_) = version_number(old), version_number(new)
    if old_major != new_major:
        return "major"
    return "minor" if old_minor != new_minor else "none"


def allows(old: Contract, new: Contract) -> bool:
    """Whether the newer version number says no less than what changed."""
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
            yield Change(path, f"{what}: {_told(was)} is {_told(now)} now", "major")
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


def _told(value: object) -> str:
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
