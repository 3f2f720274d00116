"""From the registry to a model that can be served."""

from __future__ import annotations

from clawpipe.config.night import Registry
from clawpipe.policy.spec import policy_spec
from clawpipe.registry.package import restore_policy, verify_package
from clawpipe.registry.tracking import Tracking
from clawpipe.registry.versions import download
from clawpipe.serving.policy import Served
from clawpipe.store.home import Home
from clawpipe.store.open import open_store


def find(home: Home, uri: str) -> Served:
    """The model version that `uri` names, downloaded, checked byte by byte, its artefact in the store.

    Raises:
        ConfigError, NotFoundError: no such version.
        DataError: its files, or the base that it stands on, are not those that were evaluated.
    """
    directory, info = download(Tracking.of(home, Registry().model_name), uri)  # the name that counts is the one in `uri`
    package = verify_package(directory)
    store = open_store(home)
    policy = restore_policy(store, directory)
    return Served(info.name, info.version, policy.digest, policy_spec(store, policy), package.tools, package.preamble)
