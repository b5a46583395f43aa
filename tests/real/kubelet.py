"""As much of kubelet as a scheduler waits for: a bound pod that was told to go is gone."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from tests.real.by_hand import Asking, Refusal
from tests.real.watching import following


@contextmanager
def removing_deleted_pods(url: str) -> Iterator[None]:
    """While the block runs. Nobody runs pods here, so nobody else takes those away that have a grace period."""
    with closing(Asking(url)) as ask:

        def finish(pod: dict[str, Any]) -> None:
            meta = pod["metadata"]
            if "deletionTimestamp" in meta and pod["spec"].get("nodeName"):
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                with suppress(Refusal):  # it is gone already
                    ask("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", options)

        with following(url, "/api/v1/pods", finish):
            yield
