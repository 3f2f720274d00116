"""Contracts as they were released: `data_contracts/<name>/released/<version>.odcs.yaml`, one file a version, never edited."""

from __future__ import annotations

from pathlib import Path

from clawpipe.contracts.odcs import SUFFIX, Contract, contract_names, folder_of, load_contract, parse_contract, versions_in
from clawpipe.errors import NotFoundError

_FOLDER = "released"


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
