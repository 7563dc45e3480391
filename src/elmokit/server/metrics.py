"""Events become counts, and counts a page that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUESTS = (1, 2, 4, 8, 16, 32, 64)
_TOKENS = (16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """What a service has done so far. Counted by the loop's thread alone."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.tokens = 0
        self.batch_requests = Histogram(_REQUESTS)
        self.batch_tokens = Histogram(_TOKENS)
        self.seconds: dict[str, Histogram] = {}

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """A request that was answered, refused, or given up by its client (499)."""
        self.requests[route, status] += 1
        self.seconds.setdefault(route, Histogram(_SECONDS)).add(seconds)

    def count_batch(self, requests: int, tokens: int) -> None:
        """Requests that are computed together."""
        self.tokens += tokens
        self.batch_requests.add(requests)
        self.batch_tokens.add(tokens)

    def page(self, queue_length: int) -> str:
        """The counts in Prometheus' text format."""
        return "".join(f"{line}\n" for line in self._lines(queue_length))

    def _lines(self, queue_length: int) -> Iterator[str]:
        yield from _head("elmokit_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self.requests.items()):
            yield f'elmokit_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _head("elmokit_tokens_total", "counter", "Words and marks read by the model.")
        yield f"elmokit_tokens_total {self.tokens}"
        yield from _head("elmokit_queue_length", "gauge", "Requests that wait for an answer.")
        yield f"elmokit_queue_length {queue_length}"
        yield from _head("elmokit_batch_requests", "histogram", "Requests computed together.")
        yield from self.batch_requests.lines("elmokit_batch_requests")
        yield from _head("elmokit_batch_tokens", "histogram", "Words and marks computed together.")
        yield from self.batch_tokens.lines("elmokit_batch_tokens")
        yield from _head("elmokit_request_seconds", "histogram", "From a request to its answer.")
        for route, histogram in sorted(self.seconds.items()):
            yield from histogram.lines("elmokit_request_seconds", f'route="{route}",')


class Histogram:
    """How many values were at most so large, for each of some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """The lines of a page; `labels` end in a comma."""
        so_far = 0
        for bound, count in zip([*self._bounds, "+Inf"], self._counts, strict=True):
            so_far += count
            yield f'{name}_bucket{{{labels}le="{bound}"}} {so_far}'
        outer = f"{{{labels.rstrip(',')}}}" if labels else ""
        yield f"{name}_sum{outer} {self._sum!r}"
        yield f"{name}_count{outer} {so_far}"


def _head(name: str, kind: str, says: str) -> tuple[str, str]:
    return f"# HELP {name} {says}", f"# TYPE {name} {kind}"
