"""`clawpipe contract`: list the datasets' contracts, check a file against one, and compare versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.json_types import JsonObject

if TYPE_CHECKING:
    from clawpipe.core.contracts.check import Record, Report
    from clawpipe.core.contracts.diff import Change
    from clawpipe.core.contracts.odcs import Contract

app = typer.Typer(help="Data contracts: list them, check a file or dataset, compare versions.", no_args_is_help=True)

_AT_FAULT = 65  # exit code for unusable data
_REFERENCE = "NAME or NAME@1 (in force), NAME@1.0.0 (released), or a YAML file."


@app.command("list")
def list_contracts(json_output: JsonFlag = False) -> None:
    """List the datasets that have a contract: version in force, mode, released versions, purpose."""
    from clawpipe.core.contracts.diff import released_versions
    from clawpipe.core.contracts.odcs import contract_names, load_contract

    found = [_summary(load_contract(name), released_versions(name)) for name in contract_names()]
    if json_output:
        print_json({"contracts": found})
        return
    for entry in found:
        typer.echo(f"{entry['name']:18} {entry['version']:7} {entry['mode']:14} {entry['purpose']}")


def _summary(contract: Contract, released: list[str]) -> JsonObject:
    return {
        "name": contract.name,
        "version": contract.version,
        "mode": contract.mode,
        "released": released,
        "columns": len(contract.columns),
        "purpose": contract.description.get("purpose", ""),
    }


@app.command("check")
def check(
    data: Annotated[str, typer.Argument(help="Digest of a stored dataset (or its beginning), a Parquet file, or JSON Lines.")],
    contract: Annotated[
        str | None, typer.Option("--contract", help="Contract of the data; recognised by the columns if left out.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=0, help="Faulty rows to show with all their reasons.")] = 20,
    json_output: JsonFlag = False,
) -> None:
    """Check data against a contract: every reason, the number of its rows, and the first place. Nothing is written.

    JSON Lines are read as strictly as `clawpipe inspect` reads them. Exit code 0: every row keeps the contract; 65: a row breaks
    it, or the columns are not those of the contract.
    """
    report = _checked(data, contract, limit)
    if json_output:
        print_json(report.as_dict())
    else:
        for line in _lines(report):
            typer.echo(line)
    if report.at_fault:
        raise typer.Exit(_AT_FAULT)


def _checked(data: str, name: str | None, limit: int) -> Report:
    from clawpipe.core.contracts.check import check_parquet, check_records
    from clawpipe.core.contracts.odcs import load_contract
    from clawpipe.core.contracts.schema import file_schema

    if not Path(data).is_file():
        return _checked_dataset(data, name, limit)
    if data.endswith(".parquet"):
        return check_parquet([Path(data)], load_contract(name) if name else _guess(file_schema(Path(data)).names, data), limit)
    return check_records(_records(data), load_contract(name) if name else _guess(_first_names(data), data), limit)


def _checked_dataset(digest: str, name: str | None, limit: int) -> Report:
    from clawpipe.core.contracts.check import check_parquet
    from clawpipe.core.contracts.odcs import load_contract
    from clawpipe.core.store.datasets import dataset_files, stored_datasets
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.open import open_store
    from clawpipe.errors import NotFoundError

    store = open_store(Home.from_env())
    found = [ref for ref in stored_datasets(store) if digest and ref.digest.startswith(digest)]
    if len(found) != 1:
        what = f"{len(found)} stored datasets begin with {digest!r}" if found else f"{digest!r} is no file and no stored dataset"
        raise NotFoundError(what, str(store.root), "give the path of a file, or more of the digest")
    contract = load_contract(name or found[0].name, found[0].schema_version)
    return check_parquet(dataset_files(store, found[0]), contract, limit)


def _guess(names: list[str], data: str) -> Contract:
    from clawpipe.core.contracts.check import contract_of
    from clawpipe.core.contracts.odcs import contract_names
    from clawpipe.errors import ConfigError

    if found := contract_of(names):
        return found
    raise ConfigError("the columns match no contract", data, f"--contract {'|'.join(contract_names())}")


def _first_names(data: str) -> list[str]:
    return next((list(record) for _, record in _records(data) if not isinstance(record, str)), [])


def _records(file: str) -> Iterator[Record]:
    """Yield every line with its place, or in its stead the reason why it is refused."""
    import zlib

    from clawpipe.data.importers.sources.lines import read_lines
    from clawpipe.data.importers.strict_json import RefusedError, parse_object

    number, end = 0, 0
    try:
        for line in read_lines(file):
            number, end, place = line.number, line.end, f"{file}:{line.number}@{line.offset}"
            try:
                yield place, parse_object(line.data) if line.whole else "line too long"
            except RefusedError as error:
                yield place, str(error)
    except (OSError, EOFError, zlib.error) as error:
        yield f"{file}:{number + 1}@{end}", f"file cannot be read on: {type(error).__name__}"


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.contract} {report.version} ({report.mode}): {report.kept} of {report.rows} rows keep it"
    for reason, count in report.reasons.most_common():
        yield f"  {count} x {reason}, first at {', '.join(report.first[reason])}"
    for reason, count in report.discarded.most_common():
        yield f"  discarded: {count} x {reason}"
    if report.carried:
        yield f"  kept in extra: {', '.join(report.carried)}"
    for row in report.faulty:
        yield f"{row['place']}: {'; '.join(row['reasons'])}"


@app.command("diff")
def diff(
    old: Annotated[str, typer.Argument(help=_REFERENCE)],
    new: Annotated[str | None, typer.Argument(help="Newer version, in the same form; default: the version in force.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Compare two versions of a contract: what changed, and whether it is a minor or a major change.

    Exit code 0: the version number allows the changes; 65: it does not.
    """
    from clawpipe.core.contracts.diff import allows, changes, find_contract, impact_of, permitted
    from clawpipe.core.contracts.odcs import load_contract

    before = find_contract(old)
    now = find_contract(new) if new else load_contract(before.name)
    found = changes(before, now)
    comparison = {
        "old": f"{before.name}@{before.version}",
        "new": f"{now.name}@{now.version}",
        "changes": [change._asdict() for change in found],
        "impact": impact_of(found),
        "version_allows": permitted(before.version, now.version),
        "allowed": allows(before, now),
    }
    if json_output:
        print_json(comparison)
    else:
        _print_changes(comparison, found)
    if not comparison["allowed"]:
        raise typer.Exit(_AT_FAULT)


def _print_changes(comparison: JsonObject, found: list[Change]) -> None:
    typer.echo(
        f"{comparison['old']} -> {comparison['new']}: {comparison['impact']}, its number allows {comparison['version_allows']}"
    )
    for change in found:
        typer.echo(f"  {change.impact:5}  {change.place}: {change.what}")
