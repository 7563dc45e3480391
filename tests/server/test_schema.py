"""Whatever the schema allows is answered, and whatever is answered the schema tells."""

import pytest
from hypothesis import HealthCheck, given, settings

schemathesis = pytest.importorskip(
    "schemathesis", reason="needs schemathesis (pip install schemathesis), which is not installed"
)


@pytest.mark.parametrize(
    ("mode", "method", "routes"),
    [("positive", "GET", 4), ("positive", "POST", 8), ("negative", "POST", 8)],
)
def test_what_is_sent_and_answered_is_as_the_schema_says(served, mode, method, routes):
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    operations = [found.ok() for found in schema.include(method=method).get_all_operations()]
    assert len(operations) == routes
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
        # A layer or a gap that is not there is refused, and no schema can tell it.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    call()
