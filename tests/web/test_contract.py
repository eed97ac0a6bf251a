"""Ask for pages as their OpenAPI description allows, and as it does not."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from optrove.web.app import make_app

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["site", "hostile_site"])
def test_every_page_keeps_to_its_description(kind, request):
    app = make_app(request.getfixturevalue(kind), loopback=False)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    for found in schema.get_all_operations():
        for mode in schemathesis.GenerationMode:
            _ask(found.ok().as_strategy(generation_mode=mode))


def _ask(cases):
    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=cases)
    def ask(case):
        case.call_and_validate()

    ask()
