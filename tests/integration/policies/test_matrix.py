"""The matrix on the embedded API server; tests/e2e has it on a real one."""

import pytest

from tests.integration.policies.attempt import judge
from tests.integration.policies.caller import Caller
from tests.integration.policies.cases import CASES, Case


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("case", CASES)
async def test_the_embedded_server_answers_as_the_matrix_says(caller: Caller, case: Case) -> None:
    await judge(caller, case, "default", "web")
