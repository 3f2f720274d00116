"""Each thing has one reader: nothing outside the room interprets thoughts, arguments, blocks of calls or failures of tools."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import clawpipe

ROOT = Path(clawpipe.__file__).parent
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
OUTSIDE = {name: text for name, text in SOURCES.items() if not name.startswith("data/wire/")}


def constants(text):
    """The strings of a module that are neither docstrings nor the keys of a dictionary, which writes them."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    left = {id(one.value) for one in first if isinstance(one, ast.Expr)}
    left |= {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in strings if id(node) not in left]


def with_constant(pattern):
    """The modules outside the room that have a string in which the pattern occurs."""
    return {name for name, text in OUTSIDE.items() if any(re.search(pattern, one) for one in constants(text))}


def test_nobody_else_knows_the_markers_of_thoughts():
    assert with_constant(r"think(?:ing)?>|\[/?THINK\]") == set()


def test_nobody_else_parses_arguments():
    found = {name for name, text in OUTSIDE.items() if re.search(r"json\.loads\([^()]*arguments", text)}
    renames_keys, is_for_people_to_change = "data/ingest/intake/clean.py", "play/environments/scaffold.py"
    has_no_other_library = "play/environments/libraries/bfcl.py"  # in the Python of the library that it plays
    assert found == {renames_keys, is_for_people_to_change, has_no_other_library}


def test_nobody_else_reads_marks_of_failures():
    assert with_constant(r"\A(?:is_error|isError|output-error)\Z") == set()
    assert with_constant(r"\(\?.*(?:\berror\b|traceback)") == set()


def test_nobody_else_looks_for_blocks_of_calls():
    assert with_constant(r"<tool_call>\(") == {"model/policy/formats/qwen3_coder.py"}  # whose blocks hold no JSON
