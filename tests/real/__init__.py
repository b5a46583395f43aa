"""A real kube-apiserver in the place of the embedded one: `pytest --real-api tests/integration/kube`."""

from tests.real.apiserver import ApiServer
from tests.real.behind import Real

__all__ = ["ApiServer", "Real"]
