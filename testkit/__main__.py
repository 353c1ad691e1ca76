"""Starts a server of the testkit from any directory: `python [-IS] PATH/testkit MODULE ARGUMENTS`.

A directory that Python runs is on its path even when it is isolated, so that a server that starts without
`site`, and therefore fast, can still import what servers share.
"""

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run the module of the testkit that the first argument names."""
    # The modules are those of the package `testkit`, not of this directory.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    module = import_module(f"testkit.{sys.argv[1]}")
    del sys.argv[1]
    module.main()


main()
