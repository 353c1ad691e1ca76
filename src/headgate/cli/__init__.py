"""The command line of `headgate`.

In: arguments. Out: text on standard output, errors on standard error, an exit code. Imports `app` and
everything below it, most of it inside the commands, so that `--help` is fast.
"""

import sys

# The exit codes of a shell for a program that SIGINT or SIGTERM ended.
INTERRUPTED = 130
TERMINATED = 143


def main() -> None:
    try:
        # Imported here, so that Ctrl-C during the import prints no traceback.
        from headgate.cli.commands import cli

        cli()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
