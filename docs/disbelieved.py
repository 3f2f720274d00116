"""The page "What we do not believe": every reason for which a row does not teach, read from the code that gives it.

Python is read as a syntax tree: the texts with which an exception of a kind is raised, or which a function returns. Steps of
curation are read as SQL: the texts after `then` of an expression that is named a reason. So a new reason is on the page by itself.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

from clawpipe.core.contracts.odcs import contract_names, load_contract
from clawpipe.core.contracts.reasons import all_reasons
from clawpipe.data.capture.untaught import Fault
from clawpipe.data.forgotten.tombstones import REASON as FORGOTTEN
from clawpipe.data.importers.read.wrapping import LEFT_OUT

CODE = Path(importlib.import_module("clawpipe").__path__[0])
_SQL_WORD = re.compile(
    r"\bcase\b|\bend\b(?P<named>\)?\s+as\s+(?:reason|cut|reason_without_signal|\w*fault|obstacle)\b)?", re.IGNORECASE
)
_SQL_FAULT = re.compile(r"\bmacro fault_of\w*\([^)]*\) as\b.*?;", re.DOTALL | re.IGNORECASE)
_SQL_TEXT = re.compile(r"\b(?:then|else)\s+(\w+ \|\| )?'((?:[^']|'')+)'(\s*\|\|)?")
_SQL_JOINED = re.compile(r"'([^']+)' \|\| \w+ as reason\b")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Functions = Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
_SHOWN = "…"  # what differs from row to row


class Reason(NamedTuple):
    """A reason, and the file that gives it, below the package."""

    text: str
    file: str


def raised(folders: str, *errors: str) -> list[Reason]:
    """Return the texts with which exceptions of these names are raised, in the modules below folders, between spaces."""
    return _in_modules(folders, lambda node: isinstance(node, ast.Call) and _name(node.func) in errors, lambda node: node.args[:1])


def returned(folders: str, functions: str) -> list[Reason]:
    """Return the texts that functions return whose names match a pattern."""
    return _in_modules(
        folders,
        lambda node: isinstance(node, _FUNCTIONS) and re.fullmatch(functions, node.name) is not None,
        lambda node: [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value],
    )


def given(folders: str, name: str) -> list[Reason]:
    """Return the texts that are assigned to a variable or an attribute."""
    return _in_modules(
        folders,
        lambda node: isinstance(node, ast.Assign) and any(_name(target) == name for target in node.targets),
        lambda node: [node.value],
    )


def filtered() -> list[Reason]:
    """Return the reasons of the steps of curation."""
    found = [
        Reason(text, _below(file)) for file in sorted((CODE / "data/curation/sql").glob("*.sql")) for text in _sql_reasons(file)
    ]
    return list(dict.fromkeys(found))


def broken_rules(name: str) -> list[Reason]:
    """Return the reasons for which rows of a dataset break its contract."""
    contract = load_contract(name)
    return [Reason(text, f"data_contracts/{name}") for text in all_reasons(contract)]


def _in_modules(folders: str, wanted: Callable[[Any], bool], values: Callable[[Any], list[ast.expr]]) -> list[Reason]:
    found: list[Reason] = []
    for file in (file for folder in folders.split() for file in _modules(folder)):
        tree, module = ast.parse(file.read_text(encoding="utf-8")), importlib.import_module(_module(file))
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
        for holder in [tree, *functions.values()]:
            for node in _own(holder) if holder is tree else ast.walk(holder):
                if wanted(node):
                    texts = (text for value in values(node) for text in _texts(value, module, holder, functions))
                    found += [Reason(text, _below(file)) for text in texts]
    return list(dict.fromkeys(found))


def _own(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module, with its functions but without what is in them."""
    for node in tree.body:
        yield from [node] if isinstance(node, _FUNCTIONS) else ast.walk(node)


def _texts(value: ast.AST, module: ModuleType, holder: ast.AST, functions: Functions) -> Iterator[str]:
    """Yield the texts that an expression may have; what differs from row to row is three dots."""

    def inner(*parts: ast.AST) -> Iterator[str]:
        return (text for part in parts for text in _texts(part, module, holder, functions))

    match value:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(part.value if isinstance(part, ast.Constant) else _SHOWN for part in parts)  # type: ignore[misc]
        case ast.IfExp(body=body, orelse=other):
            yield from inner(body, other)
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts):
            yield from inner(*parts)
        case ast.ListComp(elt=part):
            yield from inner(part)
        case ast.Name(id=name):
            yield from _named(name, module, holder, inner)
        case ast.Call(func=ast.Name(id="next"), args=[ast.GeneratorExp(generators=[over, *_]), *rest]):
            yield from inner(*rest)
            names = [part.id for part in ast.walk(over.iter) if isinstance(part, ast.Name)]
            yield from (text for name in names for text in _held(name, module, holder))
        case ast.Call(func=ast.Name(id=name)) if name in functions and functions[name] is not holder:
            results = [one.value for one in ast.walk(functions[name]) if isinstance(one, ast.Return) and one.value]
            for result in results:
                yield from _texts(result, module, functions[name], functions)


def _named(name: str, module: ModuleType, holder: ast.AST, inner: Callable[..., Iterator[str]]) -> Iterator[str]:
    known = getattr(module, name, None)
    if isinstance(known, str):
        yield known
        return
    yield from inner(*(node.value for node in ast.walk(holder) if isinstance(node, ast.Assign) and _name(node.targets[0]) == name))


def _held(name: str, module: ModuleType, holder: ast.AST) -> list[str]:
    """Return the texts in a dictionary of the module, or of the function."""
    known = getattr(module, name, None)
    local = [node.value for node in ast.walk(holder) if isinstance(node, ast.Assign) and _name(node.targets[0]) == name]
    values = known.values() if isinstance(known, dict) else [ast.literal_eval(one) for one in local if isinstance(one, ast.Dict)]
    return [text for one in values for text in (one.values() if isinstance(one, dict) else [one]) if isinstance(text, str)]


def _sql_reasons(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    blocks = [*_named_cases(text), *_SQL_FAULT.findall(text)]
    found = [part for block in blocks for part in _SQL_TEXT.findall(block)]
    joined = [f"{said}{_SHOWN}" for said in _SQL_JOINED.findall(text)]
    return [(_SHOWN if before else "") + said + (_SHOWN if after else "") for before, said, after in found] + joined


def _named_cases(text: str) -> Iterator[str]:
    """Yield the `case` expressions that are named a reason, with those within them."""
    begun: list[int] = []
    for word in _SQL_WORD.finditer(text):
        if word[0].lower() == "case":
            begun.append(word.start())
        elif begun:
            start = begun.pop()
            yield from [text[start : word.end()]] if word["named"] else []


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _modules(folder: str) -> list[Path]:
    place = CODE / folder
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def _module(file: Path) -> str:
    return ".".join((CODE.name, *file.relative_to(CODE).with_suffix("").parts)).removesuffix(".__init__")


def _below(file: Path) -> str:
    return file.relative_to(CODE).as_posix()


SECTIONS: dict[str, tuple[str, Callable[[], list[Reason]]]] = {
    "Lines that are rejected": (
        "Ingest and inspect count them; their text is kept in `quarantine`. The good lines beside them are read.",
        lambda: [
            *raised("data/importers data/ingest", "RefusedError", "ForeignFileError"),
            Reason(FORGOTTEN, "data/ingest/intake/admission.py"),
            Reason(LEFT_OUT, "data/importers/read/wrapping.py"),
        ],
    ),
    "Turns that are context": (
        "They stay in their conversation as side turns, and nothing is learned of them; `silent` counts them.",
        lambda: (
            returned("data/importers/untaught", r"_?reason_\w+")
            + returned("data/capture/untaught", "fault_of")
            + _faults_of_captures()
        ),
    ),
    "Answers that the gateway does not capture": (
        "`clawpipe_gateway_uncaptured` counts them; the client gets its answer all the same.",
        lambda: (
            raised("serve/gateway data/capture", "UncapturedError", "UnheldError")
            + returned("serve/gateway", r"_?uncaptured|_write|write")
            + given("serve/gateway", "uncaptured")
            + given("serve/gateway", "unheld")
            + given("serve/gateway/recorder", "reasons")
        ),
    ),
    "Rows that break their contract": (
        "They are rejected when a night begins, with every reason that applies.",
        lambda: [reason for name in contract_names() for reason in broken_rules(name)],
    ),
    "Rows whose tokens are another model's": (
        "They are rejected before the first step.",
        lambda: returned("play/recorded", r"_?faults?(_of\w*)?"),
    ),
    "Rollouts and rows that no scorer can judge": (
        "They are rejected when they are scored.",
        lambda: returned("play/judging/scoring", r"_judge\w*"),
    ),
    "Rows that curation filters": (
        "Each row under the first reason that applies, in the order of the steps. The report of a night counts them.",
        filtered,
    ),
    "Rows that a trainer leaves out": (
        "What reached it and cannot be trained on all the same.",
        lambda: returned("learn/training/data", r"_?(fault\w*|side|pair|sample)"),
    ),
    "Conversations that are no evidence": (
        "Held-out conversations and pairs on which no verdict is built.",
        lambda: returned("learn/evaluation", r"_?faults?(_\w+)?"),
    ),
}


def _faults_of_captures() -> list[Reason]:
    """Return the faults that the type of a captured reply's faults names."""
    return [Reason(text, "data/capture/untaught.py") for text in get_args(Fault)]


def disbelieved() -> str:
    """Every reason for which a row does not teach, by the place that gives it."""
    lines = [
        "# What we do not believe",
        "",
        "Every reason for which something that was recorded does not teach, as the reports, the counts and `quarantine` word it.",
        "The page is made from the code that gives the reasons; three dots stand for what differs from row to row.",
        "",
    ]
    for title, (about, collect) in SECTIONS.items():
        lines += [f"## {title}", "", about, "", "| reason | where it is given |", "|---|---|"]
        by_text: dict[str, list[str]] = {}
        for reason in collect():
            text = re.sub(f"{_SHOWN}+", _SHOWN, " ".join(reason.text.split()))
            by_text.setdefault(text, []).append(f"`{reason.file}`")
        lines += [f"| {_cell(text)} | {', '.join(dict.fromkeys(files))} |" for text, files in sorted(by_text.items())]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "|[]*_<>`" else sign for sign in text)
