"""`python -m tests.rig cluster` for people, `python -m tests.rig down` after an accident."""

import signal
import sys
from types import FrameType

import click

from tests.rig import leftovers
from tests.rig.aliquot import Aliquot
from tests.rig.errors import RigError
from tests.rig.images import BUSYBOX
from tests.rig.rig import Rig

_TO_TRY = """
The cluster is up. In another terminal:

  export KUBECONFIG={kubeconfig}
  alias kubectl={kubectl}
  kubectl get nodes,pods -A -o wide
  kubectl run hello --image={image} --image-pull-policy=Never --command -- sh -c 'echo hello; sleep 3600'
  kubectl logs hello
  kubectl exec -it hello -- sh

A pod with 2 GiB of a simulated GPU, placed and handed over by Aliquot:

  kubectl run gpu --image={image} --image-pull-policy=Never --override-type=strategic \\
    --overrides='{{"spec":{{"containers":[{{"name":"gpu","resources":{{"limits":{{"aliyun.com/gpu-mem":2}}}}}}]}}}}' \\
    --command -- sleep 3600
  kubectl exec gpu -- sh -c 'env | grep -e NVIDIA -e GPU; ls -l /dev/nvidia*'

Logs of every program are in {folder}. There is no kube-proxy and no DNS: pods reach each other by address.
The GPUs are simulated: change {steering} to change them.
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
            Aliquot(rig).start()
            _say(
                _TO_TRY.format(
                    kubeconfig=rig.admin_kubeconfig,
                    kubectl=rig.kubectl_program,
                    image=BUSYBOX,
                    folder=rig.folder,
                    steering=rig.nvml.file,
                )
            )
            if not leave:
                _say("Ctrl-C takes it down.")
                signal.pause()
    except RigError as error:
        raise click.ClickException(str(error)) from error


@main.command()
def down() -> None:
    """Clear what a killed run left behind."""
    for note in leftovers.clear():
        _say(f"cleared {note.folder}")
    for note in leftovers.every_note():
        _say(f"{note.folder} is in use by process {note.owner}: end that one")


def _end(_number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    _say("taking it down")
    sys.exit(0)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
