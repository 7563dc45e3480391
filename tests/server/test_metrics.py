import re

from prometheus_client import generate_latest

from elmokit.server.app_resources import Metrics

LINE = re.compile(r'[a-z_]+(\{([a-z]+="[^"]*",?)*\})? [-+0-9.eInf]+')


def test_requests_batches_and_seconds_are_counted():
    metrics = Metrics()
    metrics.queue_length.set(7)
    metrics.count_request("/embed", 200, 0.02)
    metrics.count_request("/embed", 200, 60)
    metrics.count_request("/next", 422, 0.001)
    metrics.count_batch(3, 100)
    page = generate_latest(metrics.registry).decode()
    for line in (
        'elmokit_requests_total{route="/embed",status="200"} 2.0',
        'elmokit_requests_total{route="/next",status="422"} 1.0',
        "elmokit_tokens_total 100.0",
        "elmokit_queue_length 7.0",
        'elmokit_batch_requests_bucket{le="2.0"} 0.0',
        'elmokit_batch_requests_bucket{le="4.0"} 1.0',
        "elmokit_batch_tokens_sum 100.0",
        'elmokit_request_seconds_bucket{le="0.025",route="/embed"} 1.0',
        'elmokit_request_seconds_bucket{le="30.0",route="/embed"} 1.0',
        'elmokit_request_seconds_bucket{le="+Inf",route="/embed"} 2.0',
        'elmokit_request_seconds_count{route="/embed"} 2.0',
    ):
        assert f"{line}\n" in page
    assert all(LINE.fullmatch(line) for line in page.splitlines() if not line.startswith("#"))


def test_unknown_paths_are_counted_as_one_route_and_tasks_by_their_template(service):
    service.get_json("/embed", {"texts": [["a"]]})
    service.get_json("/predict/ner", {"texts": ["a"]})
    service.get_error("/some/path")
    service.get_error("/another")
    status, headers, page = service.request("/metrics")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert 'elmokit_requests_total{route="/embed",status="200"} 1.0\n' in page.decode()
    assert 'elmokit_requests_total{route="/predict/{task}",status="200"} 1.0\n' in page.decode()
    assert 'elmokit_requests_total{route="other",status="404"} 2.0\n' in page.decode()
    assert "elmokit_queue_length 0.0\n" in page.decode()
