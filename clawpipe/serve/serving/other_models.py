"""Further models beside the one that is served first: adapters on the same base, each for the requests that name it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.own_models import Champion, OwnModel, OwnModels
from clawpipe.serve.serving.policy import ServedPolicy


class OtherModels:
    """Finds and keeps them; used from the event loop.

    Args:
        names: of the registered models.
        champion: returns the alias of a model.
    """

    def __init__(self, names: Iterable[str] = (), champion: Callable[[str], Champion] | None = None) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._models = OwnModels(champion) if champion else None

    async def in_service(self, policy: ServedPolicy) -> list[str]:
        """Return the names of the models that have a version which answers."""
        return [name for name in self.names if await self._found(name, policy)]

    async def of(self, name: str, policy: ServedPolicy) -> OwnModel:
        """Return the version of a model that is in service.

        Raises:
            ApiError: 404 if there is none on the base of the first model; another model does not answer in its place.
        """
        if (found := await self._found(name, policy)) is None:
            what = f"the model {name!r} has no version in service on the base of {policy.served.name!r}"
            raise ApiError(404, what, "model", "model_not_found")
        return found

    async def _found(self, name: str, policy: ServedPolicy) -> OwnModel | None:
        return await self._models.of(name, policy) if self._models and name in self.names else None
