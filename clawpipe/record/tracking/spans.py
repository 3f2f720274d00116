"""A run of a night as an OpenTelemetry trace: one span for the run, and one below it for each step.

Where spans go is said by OpenTelemetry's own variables, OTEL_EXPORTER_OTLP_ENDPOINT and others: a header may hold a key, so it is
in no setting. Importing this module imports the SDK, which is the extra `otel`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, format_trace_id, set_span_in_context

from clawpipe import __version__
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.status import StepEntry

_SECONDS = 5.0  # most that a collector that is away costs the end of a night
Ids = Mapping[str, str | None]


class NightSpans(NullWatcher):
    """A watcher of the journal that makes a span of each step, below the run's.

    Args:
        provider: gives the spans to its processors.
        night: the night's id.
        ids: further attributes of the run's span; None is left out.
    """

    def __init__(self, provider: TracerProvider, night: str, ids: Ids) -> None:
        self._tracer = provider.get_tracer("clawpipe", __version__)
        self.night = self._tracer.start_span("night", attributes=_known({"clawpipe.night": night, **ids}))
        self._step: Span | None = None

    @property
    def trace_id(self) -> str:
        """The id of the trace, 32 hexadecimal digits."""
        return format_trace_id(self.night.get_span_context().trace_id)

    def started(self, step: str) -> None:
        self._step = self._tracer.start_span(step, context=set_span_in_context(self.night))

    def warned(self, text: str) -> None:
        (self._step or self.night).add_event("warning", {"message": text})

    def finished(self, entry: StepEntry) -> None:
        if self._step:
            self._step.set_attributes(_attributes(entry))
            self._step.end()
            self._step = None

    def close(self, verdict: str | None, error: str | None) -> None:
        """End the run's span, and that of a step that an error has ended."""
        if verdict:
            self.night.set_attribute("clawpipe.verdict", verdict)
        for span in filter(None, (self._step, self.night)):
            if error:
                span.set_status(Status(StatusCode.ERROR, error))
            span.end()


@contextmanager
def spans_of(journal: Journal, ids: Ids, processor: SpanProcessor | None = None) -> Iterator[NightSpans]:
    """Let the night in this block leave a trace, whose id its status gets.

    Args:
        processor: gets the spans; one that sends them to the collector, unless given.
    """
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter(timeout=_SECONDS)))
    spans = NightSpans(provider, journal.status.night, ids)
    journal.status.trace_id = spans.trace_id
    journal.watch(spans)
    try:
        yield spans
    finally:
        spans.close(journal.status.verdict, journal.status.error)
        provider.shutdown()


def _resource() -> Resource:
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: "clawpipe"}
    return Resource.create({**named, SERVICE_VERSION: __version__})


def _attributes(entry: StepEntry) -> dict[str, str | int | float]:
    """Return the facts of a step."""
    return _known(
        {
            "clawpipe.step.state": entry.state,
            "clawpipe.step.key": entry.key,
            "clawpipe.step.digest": entry.digest,
            "clawpipe.step.rows_in": entry.rows_in,
            "clawpipe.step.rows_out": entry.rows_out,
            "clawpipe.step.accelerator_seconds": entry.accelerator_seconds,
        }
    )


def _known(attributes: Mapping[str, str | int | float | None]) -> dict[str, str | int | float]:
    return {name: value for name, value in attributes.items() if value is not None}
