"""Errors on their way from one process to another."""

from __future__ import annotations

import json

import pytest

from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, NotFoundError, StoppedError, TrainingError, error_from
from clawpipe.learn.children.run import KilledError
from clawpipe.model.engines.servers import RefusedRequestError
from clawpipe.serve.gateway.recorder import CaptureError

KINDS = (ClawpipeError, ConfigError, NotFoundError, DataError, TrainingError, BusyError, StoppedError)
NARROWER = ((RefusedRequestError, ConfigError), (CaptureError, BusyError), (KilledError, BusyError))


@pytest.mark.parametrize(("raised", "received"), [*((kind, kind) for kind in KINDS), *NARROWER])
def test_an_error_arrives_as_the_nearest_documented_kind(raised: type[ClawpipeError], received: type[ClawpipeError]):
    error = error_from(json.loads(json.dumps(raised("what", "where", "fix").as_dict())))
    assert type(error) is received
    assert (error.what, error.where, error.fix, error.exit_code) == ("what", "where", "fix", raised.exit_code)
