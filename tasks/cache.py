"""When a step is Cached: same inputs by content, same code, same libraries, and everything it made still whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore, get_result_store

from clawpipe.store.home import Home
from clawpipe.store.keys import step_key
from clawpipe.store.open import open_store
from clawpipe.store.records import Holds, live_record


@dataclass
class ContentKey(CachePolicy):
    """Prefect's cache key for a step that returns a StepResult.

    Args:
        module: the module that does the work, or several where a child process does a part; with their import closures
            they are part of the key.
        libraries: distributions whose version changes the result.
        ignore: parameters that do not change the result.
        holds: what must still be true of a recorded result, besides its artefacts.
    """

    module: str | tuple[str, ...] = ""
    libraries: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    holds: Holds | None = None

    def content_key(self, name: str, inputs: dict[str, Any]) -> str:
        """The step's key before any generation; what `clawpipe plan` shows."""
        kept = {key: value for key, value in inputs.items() if key not in self.ignore}
        return step_key(name, kept, self.module, self.libraries)

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        key = self.content_key(task_ctx.task.name, inputs)
        return live_record(_records(get_result_store()), key, open_store(Home.from_env()), self.holds)[0]


def _records(store: ResultStore) -> Path:
    """The directory in which Prefect really keeps its records, whoever set it."""
    storage = store.result_storage
    if not isinstance(storage, LocalFileSystem) or storage.basepath is None:
        raise TypeError(f"step records must lie in a local directory, not in {type(storage).__name__}")
    return Path(storage.basepath).expanduser()
