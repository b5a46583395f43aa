"""No body, however wrong, gets more out of a route than an answer that its callers can read."""

from random import Random

import pytest

from tests.fuzz.target import Route, Target, all_routes

BODIES = 2000
FEW = 50
"""Where no body is read."""


@pytest.mark.parametrize("route", all_routes(), ids=" ".join)
async def test_every_wrong_body_is_answered_in_words(target: Target, route: Route) -> None:
    random = Random(" ".join(route))
    await target.learn(route)
    for _ in range(BODIES if route[1] == "POST" else FEW):
        await target.check(route, target.body(route, random))
