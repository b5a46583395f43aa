"""One coroutine, run to its end."""

from aliquot.kubectl.awaiting import awaited


class Large:
    written = 0

    def __repr__(self) -> str:
        type(self).written += 1
        return "large"


def test_a_result_is_returned_and_never_written_out() -> None:
    large = Large()

    async def work() -> Large:
        return large

    assert awaited(work()) is large
    assert Large.written == 0
