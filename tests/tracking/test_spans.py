"""Spans of a night's steps, in the SDK's own exporter and in a collector on loopback."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.status import NightStatus, entry, read_status
from clawpipe.record.tracking.spans import spans_of

ROWS = DatasetRef(name="samples", digest="d" * 64, rows=3, parents=())


def journal_of(home: Home) -> Journal:
    return Journal(NightStatus(night="a-1", run_dir=str(home.runs / "a-1")), NullWatcher())


def two_steps(journal: Journal) -> None:
    journal.start("round-1/curate")
    journal.warn("few rows")
    journal.finish(entry("round-1/curate", False, 1.0, "curate-1", StepResult(output=ROWS, rows_in=4, rows_out=3), 2.0))
    journal.start("gate")


def fail_in_the_second_step(journal: Journal) -> None:
    two_steps(journal)
    raise OSError("the disk is full")


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_each_step_is_a_span_below_its_night(home: Home, exporter: InMemorySpanExporter):
    journal = journal_of(home)
    with spans_of(journal, {"prefect.flow_run.id": "f", "mlflow.run_id": None}, SimpleSpanProcessor(exporter)):
        two_steps(journal)
        journal.finish(entry("gate", True, 0.0, None, StepResult()))
        journal.status.verdict = "HOLD"
    spans = by_name(exporter)
    night, curate, gate = spans["night"], spans["round-1/curate"], spans["gate"]
    assert dict(night.attributes or {}) == {"clawpipe.night": "a-1", "prefect.flow_run.id": "f", "clawpipe.verdict": "HOLD"}
    assert curate.parent == gate.parent == night.context
    assert dict(curate.attributes or {}) == {
        "clawpipe.step.state": "ran",
        "clawpipe.step.key": "curate-1",
        "clawpipe.step.digest": "d" * 64,
        "clawpipe.step.rows_in": 4,
        "clawpipe.step.rows_out": 3,
        "clawpipe.step.accelerator_seconds": 2.0,
    }
    assert [(one.name, dict(one.attributes or {})) for one in curate.events] == [("warning", {"message": "few rows"})]
    assert (gate.attributes or {})["clawpipe.step.state"] == "cached"
    assert night.resource.attributes["service.name"] == "clawpipe"
    assert night.context
    assert journal.status.trace_id == f"{night.context.trace_id:032x}"


def test_an_error_ends_the_step_and_the_night(home: Home, exporter: InMemorySpanExporter):
    journal = journal_of(home)
    with pytest.raises(OSError, match="full"), spans_of(journal, {}, SimpleSpanProcessor(exporter)), journal.ended():
        fail_in_the_second_step(journal)
    spans = by_name(exporter)
    assert {name: span.status.is_ok for name, span in spans.items()} == {"round-1/curate": True, "gate": False, "night": False}
    assert "the disk is full" in (spans["night"].status.description or "")


def test_a_collector_that_is_away_fails_no_night(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{LOOPBACK}:{free_port()}")
    journal = journal_of(home)
    with spans_of(journal, {}):
        two_steps(journal)
    assert read_status(home, "a-1").steps


def test_a_collector_gets_the_trace(home: Home, monkeypatch: pytest.MonkeyPatch):
    with collecting() as (url, got):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
        journal = journal_of(home)
        with spans_of(journal, {}):
            two_steps(journal)
        key, body = got.get(timeout=30)
    assert key == "secret"
    [resource] = ExportTraceServiceRequest.FromString(body).resource_spans
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert {span.name for span in spans} == {"night", "round-1/curate", "gate"}
    assert {span.trace_id.hex() for span in spans} == {journal.status.trace_id}


@contextmanager
def collecting() -> Iterator[tuple[str, SimpleQueue[tuple[str | None, bytes]]]]:
    """A collector that speaks OTLP over HTTP: its address, and the keys and bodies that it gets."""
    got: SimpleQueue[tuple[str | None, bytes]] = SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            got.put((self.headers["x-key"], self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}", got
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_nights_without_traces_load_no_exporter():
    wrong = "name.startswith('opentelemetry.exporter') or name == 'clawpipe.record.tracking.spans'"
    look = f"import sys, flows.nightly; print([name for name in sys.modules if {wrong}])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
