"""etcd and kube-apiserver alone: nothing schedules, runs or collects pods, so what happens is the server's doing."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from aliquot.kube import from_kubeconfig
from tests.real.by_hand import Asking, Broom
from tests.real.tunnel import tunnel
from tests.rig import programs
from tests.rig.certificates import Certificates
from tests.rig.control_plane import ControlPlane

# the accounts that it wants in every namespace are made by kube-controller-manager, which also takes away the taint
# that a new node gets
_FLAGS = {"disable-admission-plugins": "ServiceAccount,TaintNodesByCondition"}


class ApiServer:
    """`url` needs no TLS and gives the rights of an administrator."""

    def __init__(self, url: str, broom: Broom, control_plane: ControlPlane, certificates: Certificates) -> None:
        self.url = url
        self.broom = broom
        self.control_plane = control_plane
        self.certificates = certificates

    @classmethod
    @contextmanager
    def up(cls, progress: Callable[[str], None] = lambda _: None) -> Iterator["ApiServer"]:
        found = programs.find(progress)
        with tempfile.TemporaryDirectory(prefix="aliquot-api-") as made:
            folder = Path(made)
            held = Certificates(folder / "certificates")
            control_plane = ControlPlane(folder, found, held, apiserver=_FLAGS)
            try:
                control_plane.start_store()
                control_plane.wait_for_apiserver()
                with (
                    tunnel(from_kubeconfig(control_plane.kubeconfig("admin"))) as url,
                    closing(Asking(url)) as ask,
                ):
                    yield cls(url, Broom(ask), control_plane, held)
            finally:
                for process in (control_plane.apiserver, control_plane.etcd):
                    process.kill()
