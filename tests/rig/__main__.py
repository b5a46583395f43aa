"""`python -m tests.rig cluster` for people, `python -m tests.rig down` after an accident."""

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from tests.rig import leftovers
from tests.rig.aliquot import Aliquot
from tests.rig.errors import RigError
from tests.rig.images import BUSYBOX
from tests.rig.rig import Rig

_EXAMPLES = Path(__file__).parents[2] / "examples"
_TO_TRY = """
The cluster is up. In another terminal:

  export KUBECONFIG={rig.admin_kubeconfig}
  alias kubectl={rig.kubectl_program}
  kubectl get nodes,pods -A -o wide
  kubectl create -f {examples}/gpushare.yaml
  kubectl exec binpack-1 -- sh -c 'env | grep -e NVIDIA -e GPU; ls -l /dev/nvidia*'
  kubectl create -f {examples}/gpushare-waits.yaml
  kubectl describe pod waits
  curl {aliquot.url}/gpushare-scheduler/inspect

The image {image} is there; there is no registry, no kube-proxy and no DNS.
Logs of every program, aliquot-server.log and aliquot-agent.log among them, are in {rig.folder}.
Those of kubelet and containerd are in {rig.node.folder}.
The GPUs are simulated: {rig.nvml.file} describes them; the agent reads it when it starts.
"""


@click.group()
def main() -> None:
    """A real Kubernetes of one node on this machine, with simulated GPUs."""


@main.command()
@click.option("--exit", "leave", is_flag=True, help="Take it down again at once.")
def cluster(leave: bool) -> None:
    """Bring a cluster up, and take it down on Ctrl-C or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        with Rig.up(progress=_say) as rig:
            _say("starting aliquot server and agent")
            aliquot = Aliquot(rig)
            aliquot.start()
            _say(_TO_TRY.format(rig=rig, aliquot=aliquot, examples=_EXAMPLES, image=BUSYBOX))
            if not leave:
                _say("Ctrl-C takes it down.")
                _watch_over(aliquot)
    except RigError as error:
        raise click.ClickException(str(error)) from error


@main.command()
def down() -> None:
    """Clear what a killed run left behind."""
    for note in leftovers.clear():
        _say(f"cleared {note.folder}")
    for note in leftovers.every_note():
        _say(f"{note.folder} is in use by process {note.owner}: end that one")


def _watch_over(aliquot: Aliquot) -> NoReturn:
    """Until a signal ends it, say when one of Aliquot's processes has ended."""
    running = [aliquot.server, aliquot.agent]
    while True:
        for process in [process for process in running if not process.running]:
            _say(f"{process.name} has ended ({process.returncode}):\n{process.tail()}")
            running.remove(process)
        time.sleep(1)


def _end(_number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    _say("taking it down")
    sys.exit(0)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
