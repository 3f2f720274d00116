"""A whole night as an OpenTelemetry trace."""

from __future__ import annotations

import uuid

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.tracking.test_spans import collecting


@pytest.mark.slow
def test_a_night_sends_its_steps_with_its_ids(finished, monkeypatch: pytest.MonkeyPatch):
    with collecting() as (url, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        status = finished.clawpipe.night("tracking.otel=true")
        bodies = [got.get_nowait()[1] for _ in range(got.qsize())]
    sent = [resource for body in bodies for resource in ExportTraceServiceRequest.FromString(body).resource_spans]
    spans = {span.name: span for one in sent for scope in one.scope_spans for span in scope.spans}
    assert set(spans) == {"night", *(step["name"] for step in status["steps"])}
    assert {span.trace_id.hex() for span in spans.values()} == {status["trace_id"]}
    night = {one.key: one.value.string_value for one in spans["night"].attributes}
    assert (night["clawpipe.night"], night["clawpipe.verdict"]) == (status["night"], status["verdict"])
    assert uuid.UUID(night["prefect.flow_run.id"])
    [registered] = [step["details"]["run_id"] for step in status["steps"] if step["name"] == "register"]
    assert night["mlflow.run_id"] == registered
    digests = {
        name: one.value.string_value for name, span in spans.items() for one in span.attributes if one.key.endswith("digest")
    }
    assert digests == {step["name"]: step["digest"] for step in status["steps"] if step["digest"]}
