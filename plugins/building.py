"""Makes a plug-in's file of our own package and of what it needs."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

_PROJECT = Path(__file__).parents[1]
_STARTED = "#!/usr/bin/env python3\n"
_OURS = (
    "*.py",
    *(f"{name}/**/*.py" for name in ("config", "control", "dialects", "engine", "kube", "kubectl", "ledger", "model")),
    "reports/**/*.py",
)
"""The modules of our own package that the plug-ins may import."""
_UNUSED = ("/tests/", "numpy/f2py/", "numpy/testing/", "/__pycache__/")
_TIME = (1980, 1, 1, 0, 0, 0)
"""The same bytes for the same content."""

Files = Mapping[str, bytes]
"""By path below a folder of packages."""


@dataclass(frozen=True)
class Plugin:
    name: str
    reference: str
    needs: tuple[str, ...]


PLUGINS = (
    Plugin(
        "kubectl-gpu",
        "aliquot.kubectl.gpu:main",
        ("httptools", "msgspec", "numpy", "prometheus-client", "pyyaml", "structlog"),
    ),
    Plugin(
        "kubectl-inspect-gpushare",
        "aliquot.kubectl.inspect_gpushare:main",
        ("httptools", "msgspec", "pyyaml", "structlog"),
    ),
)


def build(plugin: Plugin, packages: Mapping[str, Files], output: Path) -> None:
    """`packages` are what the plug-in needs, for each version of Python."""
    own = own_package(_PROJECT / "src")
    payload = _payload({version: {**found, **own} for version, found in packages.items()})
    digest = hashlib.sha256(payload).hexdigest()[:16]
    call = f"start({plugin.name!r}, {digest!r}, {tuple(packages)!r}, {plugin.reference!r})"
    main = f'{(_PROJECT / "plugins" / "bootstrap.py").read_text()}\n\nif __name__ == "__main__":\n    {call}\n'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as outer:
        outer.writestr(zipfile.ZipInfo("__main__.py", _TIME), main, zipfile.ZIP_DEFLATED)
        outer.writestr(zipfile.ZipInfo("payload.zip", _TIME), payload)  # one entry: Python reads the list at each start
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(_STARTED.encode() + file.getvalue())
    output.chmod(0o755)


def _payload(by_version: Mapping[str, Files]) -> bytes:
    """Each content once, and for each version where it goes."""
    blobs: dict[str, bytes] = {}
    lists: dict[str, dict[str, str]] = {}
    for version, files in by_version.items():
        named = {path: hashlib.sha256(content).hexdigest() for path, content in sorted(files.items())}
        blobs |= {named[path]: content for path, content in files.items()}
        lists[version] = named
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as inner:
        for version, named in lists.items():
            inner.writestr(zipfile.ZipInfo(f"{version}.json", _TIME), json.dumps(named), zipfile.ZIP_DEFLATED)
        for name in sorted(blobs):
            inner.writestr(zipfile.ZipInfo(name, _TIME), blobs[name], zipfile.ZIP_DEFLATED)
    return file.getvalue()


def own_package(source: Path) -> Files:
    folder = source / "aliquot"
    paths = {path for pattern in _OURS for path in folder.glob(pattern)}
    return {str(path.relative_to(source)): path.read_bytes() for path in sorted(paths)}


def of_wheels(wheels: Iterable[Path]) -> Files:
    found: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as held:
            found |= {name: held.read(name) for name in held.namelist() if is_used(name)}
    return found


def of_this_python(names: Iterable[str]) -> Files:
    """The packages as they are installed here."""
    found: dict[str, bytes] = {}
    for name in names:
        for file in distribution(name).files or ():
            if is_used(str(file)) and not str(file).startswith(".."):
                found[str(file)] = Path(str(file.locate())).read_bytes()
    return found


def is_used(path: str) -> bool:
    return not path.endswith(("/", ".pyi")) and not any(part in f"/{path}" for part in _UNUSED)
