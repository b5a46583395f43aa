"""`kubectl gpu uncordon`."""

import argparse

from aliquot.dialects.cordons import NO
from aliquot.kubectl.gpu import cordon

EPILOG = """examples:
  kubectl gpu uncordon gpu-1/0           # take back a cordon
  kubectl gpu uncordon gpu-1/0 --good    # declare a repaired card good, whatever its driver reported before
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    cordon.add_options(parser)
    parser.add_argument("--good", action="store_true", help="also end what the driver's errors said about the card")


def run(options: argparse.Namespace) -> int:
    return cordon.change(options, NO if options.good else None)
