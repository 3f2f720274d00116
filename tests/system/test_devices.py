"""How long accelerators are occupied."""

from __future__ import annotations

from clawpipe.core.system.devices import meter, metered


def test_only_accelerators_count_each_for_itself():
    with metered() as found:
        with meter().occupied("cpu"):
            pass
        assert found.seconds == 0
        with meter().occupied("cuda:0"):
            pass
        alone = found.seconds
        assert alone > 0
        with meter().occupied("cuda", 10**9):
            pass
        assert found.seconds > alone * 10


def test_outside_of_a_night_nobody_counts():
    with metered() as found:
        pass
    with meter().occupied("cuda:0"):
        pass
    assert found.seconds == 0
