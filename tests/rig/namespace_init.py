"""Process 1 of the node: makes its mounts, says so, then reaps orphans until it is killed.

Runs alone (no imports of the project) as `python namespace_init.py FOLDER` inside fresh mount and process
namespaces. FOLDER/ready appears when the mounts are made and holds this process's id as the machine sees it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

# In the node's view these are folders of its own, so that nothing of the machine's is touched and nothing stays.
REPLACED = {"etc": "/etc", "lib": "/var/lib", "log": "/var/log", "run": "/run"}

# kubelet sets these for the whole machine; here it sets copies.
KERNEL_SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def main(folder: Path) -> None:
    own_id = Path("/proc/self").readlink().name  # the machine's /proc is still mounted
    mount("-t", "proc", "proc", "/proc")
    mount("--make-rshared", "/")
    for name, place in REPLACED.items():
        mount("--bind", folder / name, place)
    for setting in KERNEL_SETTINGS:
        machine_wide = Path("/proc/sys") / setting
        copy = folder / "settings" / setting
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(machine_wide.read_text())
        mount("--bind", copy, machine_wide)
    part = folder / "ready.part"
    part.write_text(own_id)
    part.rename(folder / "ready")
    reap_forever()


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def reap_forever() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.sigwait([signal.SIGCHLD])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
