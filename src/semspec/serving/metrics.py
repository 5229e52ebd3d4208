"""What Prometheus reads from `/metrics`: requests, queue, tokens by author, acceptance, latency.

Each server has a registry of its own. Knows what a finished request holds; knows nothing of how it was decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from semspec.serving.decoder import Ask, Done

if TYPE_CHECKING:
    from semspec.serving.desk import Failed

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)


class Metrics:
    """Every series starts with `semspec_`."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.requests = Counter(
            "semspec_requests", "Requests by path and final status.", ["path", "status"], registry=r
        )
        self.waiting = Gauge("semspec_queue_waiting", "Requests that wait.", registry=r)
        self.running = Gauge("semspec_running", "Answers being decoded, 0 or 1.", registry=r)
        self.tokens = Counter("semspec_tokens", "Tokens of answers by author.", ["author"], registry=r)
        self.discarded = Counter("semspec_discarded_tokens", "Draft tokens thrown away.", registry=r)
        self.prompt = Counter("semspec_prompt_tokens", "Tokens of prompts.", registry=r)
        self.offered = Counter("semspec_offered_steps", "Drafted steps that were judged.", registry=r)
        self.accepted = Counter("semspec_accepted_steps", "Drafted steps that were kept.", registry=r)
        rate = Gauge("semspec_acceptance_rate", "Kept share of the judged steps since the start.", registry=r)
        rate.set_function(lambda: self._steps[1] / max(1, self._steps[0]))
        labels = {"labelnames": ["method"], "buckets": SECONDS, "registry": r}
        self.answer = Histogram("semspec_answer_seconds", "Decoding an answer.", **labels)  # type: ignore[arg-type]
        self.step = Histogram("semspec_step_seconds", "From one settled step to the next.", **labels)  # type: ignore[arg-type]
        self.queue = Histogram("semspec_queue_seconds", "Time in the queue.", buckets=SECONDS, registry=r)
        self.total = Histogram("semspec_request_seconds", "From arrival to the end.", buckets=SECONDS, registry=r)
        self._steps = [0, 0]  # judged, kept

    def request(self, path: str, status: int) -> None:
        self.requests.labels(path, str(status)).inc()

    def job(self, ask: Ask, last: Done | Failed, queued: float, seconds: float) -> None:
        """A request has left: after `seconds`, of which it waited `queued`."""
        self.request("/v1/completions" if ask.raw else "/v1/chat/completions", getattr(last, "status", 200))
        self.queue.observe(queued)
        self.total.observe(seconds)
        if not isinstance(last, Done):
            return
        self.prompt.inc(last.prompt_tokens)
        self.discarded.inc(last.discarded_tokens)
        self.answer.labels(last.method).observe(last.seconds)
        for step in last.steps:
            self.tokens.labels(step.author).inc(step.n_tokens)
            self.step.labels(last.method).observe(step.seconds)
            if step.accepted is not None:
                self._steps[0] += 1
                self._steps[1] += step.accepted
                self.offered.inc()
                self.accepted.inc(step.accepted)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)
