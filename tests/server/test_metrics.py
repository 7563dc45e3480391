import re

from elmokit.server.metrics import Metrics

LINE = re.compile(r'[a-z_]+(\{([a-z]+="[^"]*",?)*\})? [-+0-9.eInf]+')


def test_the_page_counts_requests_batches_and_seconds():
    metrics = Metrics()
    metrics.count_request("/embed", 200, 0.02)
    metrics.count_request("/embed", 200, 60)
    metrics.count_request("/next", 422, 0.001)
    metrics.count_batch(3, 100)
    page = metrics.page(7)
    for line in (
        'elmokit_requests_total{route="/embed",status="200"} 2',
        'elmokit_requests_total{route="/next",status="422"} 1',
        "elmokit_tokens_total 100",
        "elmokit_queue_length 7",
        'elmokit_batch_requests_bucket{le="2"} 0',
        'elmokit_batch_requests_bucket{le="4"} 1',
        "elmokit_batch_tokens_sum 100.0",
        'elmokit_request_seconds_bucket{route="/embed",le="0.025"} 1',
        'elmokit_request_seconds_bucket{route="/embed",le="30.0"} 1',
        'elmokit_request_seconds_bucket{route="/embed",le="+Inf"} 2',
        'elmokit_request_seconds_count{route="/embed"} 2',
    ):
        assert f"{line}\n" in page
    assert all(LINE.fullmatch(line) for line in page.splitlines() if not line.startswith("#"))


def test_the_service_shows_its_counts_and_paths_nobody_knows_as_one(served):
    served.told("/embed", {"texts": [["a"]]})
    served.refused("/some/path")
    served.refused("/another")
    status, headers, page = served.ask("/metrics")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert 'elmokit_requests_total{route="/embed",status="200"} 1\n' in page.decode()
    assert 'elmokit_requests_total{route="other",status="404"} 2\n' in page.decode()
    assert "elmokit_queue_length 0\n" in page.decode()
