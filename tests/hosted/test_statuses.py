"""What a service's status means for whoever asked it."""

import pytest

from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.model.hosted.statuses import error_of_status


@pytest.mark.parametrize(
    ("status", "kind", "fix"),
    [
        (401, ConfigError, "set THE_KEY"),
        (403, ConfigError, "set THE_KEY"),
        (402, ConfigError, "settle it there"),
        (404, DataError, "may have expired"),
        (410, DataError, "may have expired"),
        (422, ConfigError, "check the model's name"),
        (429, BusyError, "run again"),
        (503, BusyError, "run again"),
    ],
)
def test_a_status_is_an_error_with_its_remedy(status, kind, fix):
    error = error_of_status(status, "so it is", "https://service", "THE_KEY")
    assert (type(error), error.where) == (kind, "https://service")
    assert error.what.endswith(f"the service answers {status}: so it is")
    assert fix in error.fix
