"""The beginning of a plug-in's file: unpacks what this Python needs, once, and runs the program.

This is the `__main__` of the file. A Python that is too old must be able to read it, and gets a message.
"""

import os
import sys


def start(name: str, digest: str, versions: "tuple[str, ...]", reference: str) -> None:
    """`versions` are those that the file has files for, such as 3.11; `reference` is module:function."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here not in versions:
        sys.exit(f"{name} is made for Python {', '.join(versions)}, and this is {here}")
    sys.path[0] = _folder(name, digest, here)
    module, _, function = reference.partition(":")
    from importlib import import_module

    getattr(import_module(module), function)()


def _folder(name: str, digest: str, version: str) -> str:
    """The unpacked files. Without a writable cache, they are in a folder for temporary files."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    trouble = "no folder for them is ours"
    for place in (os.path.join(home, "aliquot"), f"/tmp/aliquot-{os.getuid()}"):
        folder = os.path.join(place, f"{name}-{digest}-{version}")
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            if os.stat(place).st_uid != os.getuid():
                continue  # whoever owns it could give us other code
            if not os.path.isdir(folder):
                _unpack(folder, version)
            return folder
        except OSError as error:
            trouble = str(error)
    sys.exit(f"{name} cannot unpack its files: {trouble}")


def _unpack(folder: str, version: str) -> None:
    """All files, or none: others may run the same program at the same time."""
    import json
    import shutil
    import tempfile
    import zipfile

    unfinished = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(folder))
    try:
        with zipfile.ZipFile(sys.path[0]) as outer:
            with outer.open("payload.zip") as stored, zipfile.ZipFile(stored) as inner:
                for path, blob in json.loads(inner.read(version + ".json")).items():
                    target = os.path.join(unfinished, path)
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with open(target, "wb") as file:
                        file.write(inner.read(blob))
        os.rename(unfinished, folder)
    except OSError:
        if not os.path.isdir(folder):  # else another run was first
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
