"""containerd with runc, pods in a network of their own, and the images that were made on the spot."""

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.rig import programs as programs_of_rig
from tests.rig.errors import RigError
from tests.rig.images import PAUSE, Image
from tests.rig.namespace import Namespace
from tests.rig.network import PodNetwork
from tests.rig.prerequisites import CNI_PLUGINS
from tests.rig.waiting import wait_for

_SOCKET = "run/containerd/containerd.sock"
_CAP_SYS_RESOURCE = 24

# version 3 is what containerd 2.0 to 2.2 read; later ones translate it
_CONFIG = """\
version = 3
root = '/var/lib/containerd'
state = '/run/containerd'
imports = []

[grpc]
  address = '/{socket}'
[ttrpc]
  address = '/{socket}.ttrpc'
[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'
[plugins.'io.containerd.metadata.v1.bolt']
  no_sync = true
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = {restrict_oom_score_adj}
  cdi_spec_dirs = ['{cdi}']
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{cni_plugins}']
  conf_dir = '{cni_config}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = '{shim}'
"""

# what containerd 1.x reads; it has no CDI, or has it switched off
_CONFIG_OF_1 = """\
version = 2
root = '/var/lib/containerd'
state = '/run/containerd'
imports = []

[grpc]
  address = '/{socket}'
[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '{pause}'
  restrict_oom_score_adj = {restrict_oom_score_adj}
[plugins.'io.containerd.grpc.v1.cri'.cni]
  bin_dir = '{cni_plugins}'
  conf_dir = '{cni_config}'
[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = '{shim}'
"""

_OTHER_RUNTIME = """\
[plugins.'{plugin}'.containerd]
  default_runtime_name = '{name}'
[plugins.'{plugin}'.containerd.runtimes.{name}]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = '{shim}'
[plugins.'{plugin}'.containerd.runtimes.{name}.options]
  BinaryName = '{program}'
"""


class Containerd:
    def __init__(
        self,
        folder: Path,
        programs: Mapping[str, Path],
        namespace: Namespace,
        network: PodNetwork,
    ) -> None:
        self.socket = namespace.folder / _SOCKET
        self.cdi_folder = folder / "cdi"
        self.cdi_folder.mkdir()
        self._ctr = programs["ctr"]
        self._shim = programs["containerd-shim-runc-v2"]
        self._config = folder / "containerd.toml"
        is_1 = programs_of_rig.version_of(programs["containerd"]) < (2, 0, 0)
        self._plugin = "io.containerd.grpc.v1.cri" if is_1 else "io.containerd.cri.v1.runtime"
        self._usual = (_CONFIG_OF_1 if is_1 else _CONFIG).format(
            socket=_SOCKET,
            pause=PAUSE,
            restrict_oom_score_adj=str(not _may_lower_oom_score()).lower(),
            cdi=self.cdi_folder,
            cni_plugins=CNI_PLUGINS,
            cni_config=_write_network(folder / "cni", network),
            shim=self._shim,
        )
        self._config.write_text(self._usual)
        self.process = namespace.process(
            "containerd",
            [programs["containerd"], "--config", self._config],
            log=folder / "containerd.log",
        )

    def start(self) -> None:
        self.process.start()

    def restart(self, default_runtime: Path | None = None) -> None:
        """Stop, start and wait until it answers. It starts containers through this program instead of runc."""
        self.process.stop()
        other = {"plugin": self._plugin, "name": "nvidia", "shim": self._shim, "program": default_runtime}
        self._config.write_text(self._usual + (_OTHER_RUNTIME.format(**other) if default_runtime else ""))
        self.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        wait_for(
            "containerd to be ready",
            lambda: self.socket.exists() and self._run("version").returncode == 0,
            seconds=30,
            processes=[self.process],
        )

    def load(self, images: Iterable[Image], folder: Path) -> None:
        """Import images; each is written below `folder` for that moment."""
        archives = [image.write(folder) for image in images]
        for archive in archives:
            self.load_archive(archive)
            archive.unlink()

    def load_archive(self, archive: Path) -> None:
        done = self._run("images", "import", str(archive))
        if done.returncode != 0:
            raise RigError(f"image {archive.name} was not imported: {done.stderr}\n{self.process.tail()}")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._ctr, "--address", self.socket, "--namespace", "k8s.io", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )


def _may_lower_oom_score() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def _write_network(folder: Path, network: PodNetwork) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pods = {
        "type": "ptp",
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.subnet, "rangeEnd": network.last_pod_address}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    conflist = {"cniVersion": "1.0.0", "name": "rig", "plugins": [pods]}
    (folder / "rig.conflist").write_text(json.dumps(conflist, indent=2))
    return folder
