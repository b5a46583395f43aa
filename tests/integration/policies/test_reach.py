"""What our own accounts may write, on the embedded API server; tests/e2e has it on a real one."""

import pytest

from aliquot.control.admission import NAMESPACE
from tests.integration.policies.caller import Caller
from tests.integration.policies.reach import WRITES, Write, judge


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("write", WRITES)
async def test_our_accounts_write_what_they_must_and_no_more(caller: Caller, write: Write) -> None:
    await judge(caller, write, NAMESPACE, "default", "web")
