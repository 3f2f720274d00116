"""Parse untrusted YAML into plain values, bounded in size."""

from __future__ import annotations

from typing import Any

import yaml

_MOST_VALUES = 100_000  # a few lines of nested aliases can stand for billions of values
_DEEPEST = 200  # collections within one another; beyond some thousands libyaml's composer overflows the stack
_MERGE = "tag:yaml.org,2002:merge"  # several of which are merged one after another
_TOO_DEEP = "it is nested too deeply"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's takes a seventh of the time; not every build of PyYAML has it


def parse_yaml(text: str | bytes) -> Any:
    """Return the value of a document.

    Raises:
        yaml.YAMLError: the text is no YAML, is nested too deeply, names a key twice in one mapping, or has aliases that expand to
            more than `_MOST_VALUES` values or to themselves.
    """
    try:
        _check_depth(text)
        return _parsed(text)
    except yaml.MarkedYAMLError as error:
        _drop_snippets(error)
        raise
    except RecursionError:
        raise yaml.YAMLError(_TOO_DEEP) from None
    except ValueError as error:  # an impossible date, or a number with thousands of digits
        raise yaml.YAMLError(str(error)) from None


def _check_depth(text: str | bytes) -> None:
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.YAMLError(_TOO_DEEP)


def _parsed(text: str | bytes) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _drop_snippets(error: yaml.MarkedYAMLError) -> None:
    """Leave places in the message, but not the lines: one of them may hold a password."""
    for mark in (error.context_mark, error.problem_mark):
        if isinstance(mark, yaml.Mark):  # libyaml's marks hold no line
            mark.buffer = None


def _count(node: yaml.Node, counted: dict[int, int]) -> int:
    """Return the number of values that a node expands to; `counted` caches it by node id."""
    if id(node) in counted:
        return counted[id(node)]
    counted[id(node)] = _MOST_VALUES + 1  # for an alias inside its own node
    if isinstance(node, yaml.MappingNode):
        _refuse_repeats(node)
    parts = node.value if isinstance(node, yaml.CollectionNode) else ()
    total = 1 + sum(_count(part, counted) for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,)))
    if total > _MOST_VALUES:
        raise yaml.YAMLError(f"its aliases stand for more than {_MOST_VALUES} values")
    counted[id(node)] = total
    return total


def _refuse_repeats(mapping: yaml.MappingNode) -> None:
    """PyYAML would take the last of two blocks of one name, and drop the first without a word."""
    seen = set[tuple[str, str]]()
    for key in (key for key, _ in mapping.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE):
        if (key.tag, key.value) in seen:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {key.value!r} stands here a second time", problem_mark=key.start_mark
            )
        seen.add((key.tag, key.value))
