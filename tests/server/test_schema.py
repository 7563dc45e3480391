"""What the schema allows is answered, and every response is as the schema says."""

import pytest
from hypothesis import HealthCheck, given, settings

pytestmark = pytest.mark.full

schemathesis = pytest.importorskip(
    "schemathesis", reason="needs schemathesis (pip install schemathesis), which is not installed"
)


@pytest.mark.parametrize(
    ("mode", "method"), [("positive", "GET"), ("positive", "POST"), ("negative", "POST")]
)
def test_requests_and_responses_follow_the_schema(service, mode, method):
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations = [
        operation.ok() for operation in schema.include(method=method).get_all_operations()
    ]
    methods = [*service.get_json("/openapi.json")["paths"].values()]
    assert len(operations) == sum(method.lower() in own for own in methods) > 0
    for operation in operations:
        _try(operation, schemathesis.GenerationMode(mode))


def _try(operation, mode):
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    @settings(
        max_examples=10,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case):
        # Layers, gaps and tasks that do not exist are refused, which no schema can express.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    call()
