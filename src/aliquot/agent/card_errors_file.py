"""The file in which the errors of cards outlast a restart of the agent.

It is beside the CDI specs, in a folder that is empty after a reboot, and a reboot ends the errors, too. The container
runtime reads only files that end with `.json` or `.yaml`.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from aliquot.agent.card_health import LastingError

_log = structlog.get_logger()
_NAME = "aliquot.io-card-errors"


class CardErrorsFile:
    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._written: Mapping[str, LastingError] = {}

    def read(self) -> Mapping[str, LastingError]:
        """The errors by uuid. Says so in the log if the file cannot be read."""
        try:
            self._written = msgspec.json.decode(self._path.read_bytes(), type=dict[str, LastingError])
        except FileNotFoundError:
            self._written = {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.error("cannot read the errors of cards from before", path=str(self._path), error=str(error))
        return self._written

    def write(self, errors: Mapping[str, LastingError]) -> None:
        """Write the errors if they differ."""
        if errors == self._written:
            return
        self._written = dict(errors)
        temporary = self._path.with_name(f".{_NAME}")
        try:
            temporary.write_bytes(msgspec.json.encode(errors))
            temporary.rename(self._path)
        except OSError as error:
            _log.error("cannot keep the errors of cards for a restart", path=str(self._path), error=str(error))
