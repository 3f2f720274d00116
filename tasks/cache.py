"""When a step is Cached: same inputs by content, same code, same libraries, and everything it made still whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from prefect.cache_policies import CachePolicy
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore, get_result_store
from pydantic import BaseModel

from clawpipe.config.night import EnvironmentSpec
from clawpipe.environments.discovery import source_digest
from clawpipe.store.digests import canonical_as, is_block
from clawpipe.store.home import Home
from clawpipe.store.keys import step_key
from clawpipe.store.open import open_store
from clawpipe.store.records import Holds, live_record
from clawpipe.store.source import function_digest


def content_key(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """The key of calling `function(**arguments)`, before any generation; what `clawpipe plan` shows.

    Settings count as far as the type that the parameter declares has their fields; an environment, with its source.

    Raises:
        TypeError: an argument has no canonical form.
        NotFoundError: no such environment.
    """
    declared = get_type_hints(inspect.unwrap(function))
    inputs = {parameter: _as_declared(value, declared.get(parameter)) for parameter, value in arguments.items()}
    environments = sorted({value.name for value in arguments.values() if isinstance(value, EnvironmentSpec)})
    return step_key(
        name, {"inputs": inputs, "environments": [source_digest(one) for one in environments]}, function_digest(function)
    )


def _as_declared(value: Any, hint: Any) -> Any:
    if not isinstance(value, BaseModel):
        return value
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    blocks = [choice for choice in choices if isinstance(choice, type) and isinstance(value, choice) and is_block(choice)]
    return canonical_as(value, blocks[0]) if blocks else value


@dataclass
class ContentKey(CachePolicy):
    """Prefect's cache key for a step that returns a StepResult.

    Args:
        function: the step's own function.
        holds: what must still be true of a recorded result, besides its artefacts.
    """

    function: Callable[..., Any] = lambda: None
    holds: Holds | None = None

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        key = content_key(task_ctx.task.name, self.function, inputs)
        return live_record(_records(get_result_store()), key, open_store(Home.from_env()), self.holds)[0]


def _records(store: ResultStore) -> Path:
    """The directory in which Prefect really keeps its records, whoever set it."""
    storage = store.result_storage
    if not isinstance(storage, LocalFileSystem) or storage.basepath is None:
        raise TypeError(f"step records must lie in a local directory, not in {type(storage).__name__}")
    return Path(storage.basepath).expanduser()
