"""Find the champion that a night has to beat, and restore its files."""

from __future__ import annotations

from clawpipe.core.store.artifacts import Store
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.record import Incumbent
from clawpipe.record.registry.tracking import Tracking


def incumbent(tracking: Tracking, night: str) -> Incumbent | None:
    """Return the model that a night starting now has to beat: the champion, or its predecessor if this night made the champion.

    Without a registry, nothing is imported or created.

    Raises:
        ConfigError: another home keeps the moves of this champion, and this one cannot know them.
    """
    if not tracking.exists:
        return None
    from clawpipe.record.registry.client import connect, require_ledger  # loads MLflow
    from clawpipe.record.registry.promotions import history, previous_champion, promotion_by
    from clawpipe.record.registry.versions import champion, resolve

    require_ledger(connect(tracking), tracking, tracking.ledger())
    found = champion(tracking)
    own = found and promotion_by(tracking, night, found.version)  # of a version, perhaps, that an earlier night has registered
    if found and (own or found.night == night):
        before = own.from_version if own else previous_champion(history(tracking), found.version)
        found = resolve(tracking, f"models:/{tracking.model_name}/{before}") if before else None
    return Incumbent(version=found.version, night=found.night, policy=found.policy) if found else None


def restore(tracking: Tracking, store: Store, champion: Incumbent) -> bool:
    """Restore the champion's artifact from the registry into the store. Returns False if the registry has lost it too."""
    from clawpipe.record.registry.package import restore_policy
    from clawpipe.record.registry.versions import download

    try:
        directory, _ = download(tracking, f"models:/{tracking.model_name}/{champion.version}")
        return restore_policy(store, directory) == champion.policy
    except ClawpipeError:
        return False
