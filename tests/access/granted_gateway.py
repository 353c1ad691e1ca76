"""`headgate serve` with identities by header and access by grants."""

import argparse
import os
import sys
from pathlib import Path

from headgate.app.gateway_server import serve
from headgate.app.log_setup import set_up_logging
from headgate.cli.command_runner import run
from headgate.config.loader import load
from headgate.config.settings import Flags, Settings
from tests.access.granted import GrantedAccess, HeaderAuthenticator


def main() -> int:
    """Run the gateway with the options of `headgate serve` that tests use."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--transport")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--data-dir", type=Path)
    given = vars(parser.parse_args())
    del given["command"]
    flags = Flags(**given)

    def read() -> Settings:
        return load(flags, os.environ, Path.cwd())

    settings = read()
    set_up_logging(settings.log_level, settings.log_format, settings.log_file)
    return run(serve(settings, read, authenticator=HeaderAuthenticator(), access=GrantedAccess()))


if __name__ == "__main__":
    sys.exit(main())
