"""A service that speaks Tinker's API, through its own library, which numbers requests: one that is sent twice counts once."""

from __future__ import annotations

import os
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import tinker

from clawpipe.core.system import faults
from clawpipe.model.hosted.tinker_errors import told_as_ours


class Service:
    """The service at a URL, as a context: what was opened in it is closed at its end.

    Args:
        url: None: the one that the library knows.
        model: name of the base there.
        timeout: seconds that one request may take, with all its tries.
    """

    def __init__(self, url: str | None, model: str, timeout: float) -> None:
        os.environ["TINKER_TELEMETRY"] = "0"  # it would send what errors say
        self.url, self.model, self.timeout = url, model, timeout
        self.where = url or os.environ.get("TINKER_BASE_URL") or "tinker"
        self._client: tinker.ServiceClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close("errored" if error else "success")

    def close(self, status: str = "success") -> None:
        """End the session at the service. Safe to call twice."""
        client, self._client = self._client, None
        if client is None:
            return
        with suppress(Exception):  # the session ends by itself, a little later
            client.close(status).result(timeout=10)  # pyright: ignore[reportArgumentType]

    @property
    def client(self) -> tinker.ServiceClient:
        if self._client is None:
            self._client = tinker.ServiceClient(base_url=self.url)
        return self._client

    def ask(self, name: str, future: Any) -> Any:
        """Wait for the answer to a request.

        Raises:
            ClawpipeError: see `told_as_ours`.
        """
        faults.kill_point("tinker.asked", name)
        with told_as_ours(self.where):
            answer = future.result(timeout=self.timeout)
        faults.kill_point("tinker.answered", name)
        return answer


def is_same_model(found: str, model: str) -> bool:
    """Whether two names are one model's, with or without its owner, or a variant of it."""
    one, other = (name.rpartition("/")[2].casefold() for name in (found, model))
    return one in other or other in one
