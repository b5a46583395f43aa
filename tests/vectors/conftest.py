"""`pytest -m vectors` ends with how many there are."""

import pytest

COUNT: pytest.StashKey[int] = pytest.StashKey()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[COUNT] = sum(item.get_closest_marker("vectors") is not None for item in session.items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("markexpr") == "vectors" and COUNT in config.stash:  # workers count for themselves
        terminalreporter.write_line(f"{config.stash[COUNT]} vectors")
