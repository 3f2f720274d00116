"""Figures for Prometheus, from `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from clawpipe.serve.serving.live import Live
from clawpipe.serve.serving.versions import Versions

_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
    *("/generate", "/v1/feedback", "/v1/models", "/healthz", "/metrics"),
)


class Metrics:
    """Counts responses, and reads the rest from the loaded versions when it is asked."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, versions: Versions[Live]) -> None:
        self._versions = versions
        self._registry = CollectorRegistry(auto_describe=False)
        self._responses = Counter("clawpipe_responses", "HTTP responses.", ("path", "status"), registry=self._registry)
        self._registry.register(self)  # pyright: ignore[reportArgumentType]

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)

    def responded(self, path: str, status: int) -> None:
        """Count a response."""
        self._responses.labels(path if path in _PATHS else "other", str(status)).inc()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the figures of each loaded version."""
        running = GaugeMetricFamily("clawpipe_answers_running", "Answers that share the engine's passes.", labels=["version"])
        waiting = GaugeMetricFamily("clawpipe_answers_waiting", "Answers that wait for a place.", labels=["version"])
        sessions = GaugeMetricFamily("clawpipe_sessions", "Sessions that stay on a version.", labels=["version"])
        service = GaugeMetricFamily("clawpipe_in_service", "1 for the version that new sessions get.", labels=["version"])
        ended = CounterMetricFamily("clawpipe_answers", "Answers by how they ended.", labels=["version", "kind"])
        tokens = CounterMetricFamily("clawpipe_tokens", "Tokens of prompts and answers.", labels=["version", "kind"])
        trial = GaugeMetricFamily("clawpipe_on_trial", "1 for the version that a share of new sessions gets.", labels=["version"])
        for live in self._versions.loaded:
            version = live.served.version
            running.add_metric([version], live.thread.running)
            waiting.add_metric([version], live.thread.answers - live.thread.running)
            sessions.add_metric([version], self._versions.sessions_of(live))
            service.add_metric([version], live is self._versions.current)
            trial.add_metric([version], live is self._versions.trial)
            for kind, count in live.counts.items():
                (tokens if kind in ("prompt", "sampled") else ended).add_metric([version, kind], count)
        yield from (running, waiting, sessions, service, trial, ended, tokens)
