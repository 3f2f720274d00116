"""YAML of anybody's: plain values, of a size that the file itself has."""

from __future__ import annotations

from typing import Any

import yaml

_MOST_VALUES = 100_000  # a few lines of aliases of aliases stand for billions, and whoever walks through them never ends


def parse_yaml(text: str | bytes) -> Any:
    """What a document says.

    Raises:
        yaml.YAMLError: it is no YAML, or its aliases stand for more than `_MOST_VALUES` values or for themselves.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except ValueError as error:  # no such date, or a number of thousands of digits
        raise yaml.YAMLError(str(error)) from None
    finally:
        loader.dispose()


def _count(node: yaml.Node, counted: dict[int, int]) -> int:
    """How many values a node stands for, aliases written out; `counted` knows those of nodes seen before, by their id."""
    if id(node) in counted:
        return counted[id(node)]
    counted[id(node)] = _MOST_VALUES + 1  # for an alias of a node inside of itself
    parts = node.value if isinstance(node, yaml.CollectionNode) else ()
    total = 1 + sum(_count(part, counted) for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,)))
    if total > _MOST_VALUES:
        raise yaml.YAMLError(f"its aliases stand for more than {_MOST_VALUES} values")
    counted[id(node)] = total
    return total
