"""Names of tags. Pages of MLflow list a version's tags by name, so those that no person reads begin with a late letter."""

from __future__ import annotations

from collections.abc import Mapping

_INTERNAL, _EARLIER = "x-clawpipe.", "clawpipe."  # the second until 0.2


def internal(name: str) -> str:
    """Return the tag for a name like `key`."""
    return f"{_INTERNAL}{name}"


def earlier(name: str) -> str:
    """Return the tag that 0.2 and before used for it."""
    return f"{_EARLIER}{name}"


def internals(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the internal tags by name, whichever version of clawpipe wrote them."""
    found = {}
    for prefix in (_EARLIER, _INTERNAL):
        found |= {tag.removeprefix(prefix): value for tag, value in tags.items() if tag.startswith(prefix)}
    return found
