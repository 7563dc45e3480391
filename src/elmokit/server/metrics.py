"""Prometheus metrics of the service."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUESTS = (1, 2, 4, 8, 16, 32, 64)
_TOKENS = (16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "elmokit_requests", "Requests by route and status.", ["route", "status"],
            registry=registry,
        )  # fmt: skip
        self.tokens = Counter(
            "elmokit_tokens", "Words and special tokens read by the model.", registry=registry
        )
        self.queue_length = Gauge(
            "elmokit_queue_length", "Requests waiting for an answer.", registry=registry
        )
        self.batch_requests = Histogram(
            "elmokit_batch_requests", "Requests computed together.", buckets=_REQUESTS,
            registry=registry,
        )  # fmt: skip
        self.batch_tokens = Histogram(
            "elmokit_batch_tokens", "Words and special tokens computed together.",
            buckets=_TOKENS, registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "elmokit_request_seconds", "Seconds from a request to the end of its response.",
            ["route"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, refused, or given up by its client (499)."""
        self.requests.labels(route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def count_batch(self, requests: int, tokens: int) -> None:
        """Count requests that are computed together."""
        self.tokens.inc(tokens)
        self.batch_requests.observe(requests)
        self.batch_tokens.observe(tokens)
