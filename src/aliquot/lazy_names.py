"""Names of a package that are imported from its modules when they are first used.

Type checkers do not see them: the package imports the same names `if TYPE_CHECKING`, and a test compares the two.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562). `names` has the names of each module of the package, separated by
    spaces. A name must not be that of a module: once imported, the module would stand in its place."""
    homes = {name: module for module, own in names.items() for name in own.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)  # so that nobody asks again
        return found

    return load
