"""The first layer: Debian with Python, and what the packages' install scripts would have made."""

import re
from collections.abc import Iterable
from pathlib import Path

from image import deb
from image.errors import ImageError
from image.tree import Tree

PACKAGES = ("base-files", "ca-certificates", "dash", "libc6", "libstdc++6", "netbase", "python3")
"""libstdc++6 for the wheels of grpcio and numpy; dash because default commands use variables."""

USER = 65532
"""A user without rights, for manifests that say runAsUser."""

_LEFT_OUT = re.compile(
    r"usr/share/(man|info|locale|lintian|bug|doc-base|applications|pixmaps|menu)/"
    r"|usr/share/doc/[^/]+/(?!copyright$)"
    r"|usr/lib/[^/]+/gconv/"
)
_AUTHORITIES = "usr/share/ca-certificates/"
_BUNDLE = "etc/ssl/certs/ca-certificates.crt"


def of(packages: Iterable[Path]) -> Tree:
    tree = Tree()
    status = []
    for package in packages:
        with deb.files(package) as files:
            tree.add_tar(files, lambda path: not _LEFT_OUT.match(path))
        status.append(_installed(deb.control(package)))
    tree.file("var/lib/dpkg/status", "\n".join(status))
    for name in ("bin", "sbin", "lib", "lib64"):
        tree.folder(f"usr/{name}")
        tree.link(name, f"usr/{name}")
    tree.link("usr/bin/sh", "dash")
    _add_users(tree)
    _add_authorities(tree)
    tree.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    tree.folder("tmp", 0o1777)
    tree.folder("var/tmp", 0o1777)
    for name in ("dev", "proc", "sys", "run", "root"):
        tree.folder(name, 0o700 if name == "root" else 0o755)
    return tree


def python_version(tree: Tree) -> str:
    """Of the image's own Python, such as 3.13."""
    for path in tree.entries:
        if found := re.fullmatch(r"usr/bin/python(3\.\d+)", path):
            return found[1]
    raise ImageError("the packages have no Python")


def _installed(control: str) -> str:
    first, rest = control.strip("\n").split("\n", 1)
    return f"{first}\nStatus: install ok installed\n{rest}\n"


def _add_users(tree: Tree) -> None:
    tree.file(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\n"
        f"aliquot:x:{USER}:{USER}:aliquot:/tmp:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    )
    tree.file("etc/group", f"root:x:0:\naliquot:x:{USER}:\nnogroup:x:65534:\n")


def _add_authorities(tree: Tree) -> None:
    """One bundle, where OpenSSL and Python look for it."""
    held = [
        entry.content
        for path, entry in sorted(tree.entries.items())
        if path.startswith(_AUTHORITIES) and path.endswith(".crt")
    ]
    tree.file(_BUNDLE, b"".join(held))
    tree.link("usr/lib/ssl/cert.pem", f"/{_BUNDLE}")
