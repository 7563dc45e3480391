"""Whatever the schema allows is answered, and whatever is answered the schema tells."""

import pytest
from hypothesis import HealthCheck, given, settings

schemathesis = pytest.importorskip(
    "schemathesis", reason="needs schemathesis (pip install schemathesis), which is not installed"
)


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_what_is_sent_and_answered_is_as_the_schema_says(served, mode):
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    for operation in schema.include(method="POST").get_all_operations():
        _try(operation.ok(), schemathesis.GenerationMode(mode))


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
