"""The configuration of a running server follows its source."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from aliquot import metrics
from aliquot.config.declaration import Given
from aliquot.config.live_config import LiveConfig
from aliquot.config.server_tree import ServerConfig
from aliquot.config.sources import FileSource, NoSource
from aliquot.errors import BadConfig
from tests.fakes import FakeClock, until


class Running:
    """A live configuration whose file the test writes."""

    def __init__(self, live: LiveConfig, path: Path, clock: FakeClock) -> None:
        self.live = live
        self.path = path
        self.clock = clock
        self.applied: list[ServerConfig] = []
        live.on_change(self.applied.append)

    async def write(self, text: str) -> None:
        """A new file in the old one's place, as editors and kubelet do it; looked at before this returns."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)
        await self.look()

    async def look(self) -> None:
        await until(lambda: self.clock.sleeping)
        await self.clock.move(1)


@asynccontextmanager
async def running(path: Path, clock: FakeClock, text: str = "", **given: Given) -> AsyncIterator[Running]:
    path.write_text(text)
    live = await LiveConfig.start(
        FileSource(str(path), clock), {name.replace("__", "."): one for name, one in given.items()}
    )
    following = asyncio.create_task(live.run())
    try:
        yield Running(live, path, clock)
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


def gauge(name: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name)


async def test_a_file_that_is_too_large_keeps_the_last_good_configuration(tmp_path: Path, clock: FakeClock) -> None:
    async with running(tmp_path / "c.yaml", clock, "commit: {budget: 1}") as room:
        await room.write("commit: {budget: 2}\n#" + "x" * 10_000_000)
        assert room.live.tree.commit.budget == 1.0
        (note,) = room.live.notes()
        assert "has more than 65536 bytes" in note


async def test_a_live_key_is_applied_at_once(tmp_path: Path, clock: FakeClock) -> None:
    async with running(tmp_path / "c.yaml", clock) as room:
        await room.write("commit: {budget: 1}")
        (applied,) = room.applied
        assert applied.commit.budget == room.live.tree.commit.budget == 1.0
        assert room.live.notes() == []
        assert gauge("aliquot_config_restart_needed") == 0


async def test_a_key_that_needs_a_restart_is_named_and_left_as_it_was(tmp_path: Path, clock: FakeClock) -> None:
    async with running(tmp_path / "c.yaml", clock) as room:
        await room.write("lease: {name: other}\nendpoints: {native: {port: 1}}\nlog: {level: debug}")
        assert room.live.tree.lease.name == "aliquot-server"
        assert room.live.tree.log.level == "debug"
        assert room.live.notes() == ["restart the server to apply new values of endpoints.native.port, lease.name"]
        assert gauge("aliquot_config_restart_needed") == 2
        await room.write("log: {level: debug}")
        assert room.live.notes() == []
        assert gauge("aliquot_config_restart_needed") == 0


@pytest.mark.parametrize("text", ["commit: {budget: much}", "log: [", "policies: {gpu: {hami: best}}"])
async def test_a_text_that_cannot_be_used_keeps_the_last_good_one(tmp_path: Path, clock: FakeClock, text: str) -> None:
    async with running(tmp_path / "c.yaml", clock, "commit: {budget: 1}") as room:
        await room.write(text)
        assert room.applied == []
        assert room.live.tree.commit.budget == 1.0
        (note,) = room.live.notes()
        assert note.startswith("the configuration is invalid, keeping the last valid one: ")
        assert gauge("aliquot_config_valid") == 0
        await room.write("commit: {budget: 2}")
        assert room.live.notes() == []
        assert room.live.tree.commit.budget == 2.0
        assert gauge("aliquot_config_valid") == 1


async def test_a_change_that_cannot_be_applied_keeps_the_last_good_one(tmp_path: Path, clock: FakeClock) -> None:
    async with running(tmp_path / "c.yaml", clock) as room:

        def refuse(_: ServerConfig) -> None:
            raise BadConfig("not now")

        room.live.on_change(refuse)
        await room.write("commit: {budget: 1}")
        assert room.live.tree.commit.budget == 2.5
        assert "not now" in room.live.notes()[0]


async def test_a_file_that_goes_away_is_told_and_the_last_good_one_kept(tmp_path: Path, clock: FakeClock) -> None:
    async with running(tmp_path / "c.yaml", clock, "commit: {budget: 1}") as room:
        room.path.unlink()
        await room.look()
        assert "c.yaml cannot be read" in room.live.notes()[0]
        assert room.live.tree.commit.budget == 1.0


async def test_a_mounted_config_map_changes_by_a_symbolic_link(tmp_path: Path, clock: FakeClock) -> None:
    """As kubelet does it: ..data is swapped, the file's own link stays."""
    for version, level in (("1", "info"), ("2", "debug")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text(f"log: {{level: {level}}}")
    data, path = tmp_path / "..data", tmp_path / "config.yaml"
    data.symlink_to("1")
    path.symlink_to("..data/config.yaml")
    live = await LiveConfig.start(FileSource(str(path), clock), {})
    following = asyncio.create_task(live.run())
    swapped = tmp_path / "..tmp"
    swapped.symlink_to("2")
    swapped.rename(data)
    await until(lambda: live.tree.log.level == "debug", passing=clock)
    following.cancel()


async def test_a_flag_counts_before_a_new_file_too(tmp_path: Path, clock: FakeClock) -> None:
    given = Given("error", "--log-level")
    async with running(tmp_path / "c.yaml", clock, log__level=given) as room:
        await room.write("log: {level: debug}")
        assert room.live.tree.log.level == "error"
        assert room.live.notes() == []


async def test_a_file_that_does_not_change_is_not_read_again(tmp_path: Path, clock: FakeClock) -> None:
    async with running(tmp_path / "c.yaml", clock) as room:
        for _ in range(5):
            await room.look()
        assert room.applied == []


async def test_without_a_source_there_is_nothing_to_follow() -> None:
    live = await LiveConfig.start(NoSource(), {"log.level": Given("debug", "--log-level")})
    await live.run()
    assert live.tree.log.level == "debug"
