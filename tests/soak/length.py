"""How long the soak runs: ALIQUOT_SOAK_EXAMPLES and ALIQUOT_SOAK_MINUTES, whichever ends first, per test."""

import os
import time
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, settings

_EXAMPLES = int(os.environ.get("ALIQUOT_SOAK_EXAMPLES", "2000"))
_MINUTES = float(os.environ.get("ALIQUOT_SOAK_MINUTES", "1"))
_ROUND = 200
"""Examples between two looks at the time."""


def in_rounds(run: Callable[[settings], object], examples: int = _EXAMPLES, **how: int) -> int:
    """Call `run` with settings for one round after another, new examples each time; returns how many there were."""
    end = time.monotonic() + _MINUTES * 60
    done = 0
    while done < examples and time.monotonic() < end:
        count = min(_ROUND, examples - done)
        run(_settings(count, **how))
        done += count
    return done


def _settings(examples: int, **how: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=False,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        **how,  # type: ignore[arg-type]
    )
