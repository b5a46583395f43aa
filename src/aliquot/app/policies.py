"""`aliquot policies`: the admission policies as YAML."""

from collections.abc import Sequence

import yaml

from aliquot.control.admission import ACTIONS, manifests
from aliquot.dialects import Dialects

_HEAD = """\
# Made by `aliquot policies`. With these policies the API server itself rejects writes of stale leaders, forged
# placements, and everything else that Aliquot's own accounts need not write (docs/admission.md).
# Apply them after deploy/aliquot.yaml, which has the ConfigMaps that they read. Delete them before the rest of Aliquot.
"""


def policies_yaml(dialects: Dialects, namespace: str, enforce: str) -> str:
    """The policies for kubectl. `enforce` is a key of ACTIONS."""
    made: Sequence[object] = manifests(dialects, namespace, ACTIONS[enforce])
    return _HEAD + yaml.dump_all(made, Dumper=_Dumper, sort_keys=False, width=1_000_000)


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
