"""What becomes of a step that has ended."""

from __future__ import annotations

import pytest
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError

from clawpipe.core.store.refs import StepResult
from clawpipe.errors import BusyError
from flows.runners import result_of


class Ended:
    def __init__(self, outcome: StepResult | Exception) -> None:
        self._outcome = outcome

    def result(self) -> StepResult:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def test_a_step_without_a_place_on_the_gpu_is_tried_again():
    """An overloaded server answered 503; the night ended as if something unexpected had happened."""
    with pytest.raises(BusyError, match="no place on the accelerator: 503"):
        result_of(Ended(ConcurrencySlotAcquisitionError("503 Service Unavailable")))


def test_any_other_error_stays_what_it_is():
    assert result_of(Ended(StepResult(rows_in=3))) == StepResult(rows_in=3)
    with pytest.raises(ValueError, match="x"):
        result_of(Ended(ValueError("x")))
