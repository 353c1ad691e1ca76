"""The command line: what is called, and how it ends when somebody interrupts it."""

import sys

# As the shell says it for a program that was interrupted, or told to end.
INTERRUPTED = 130
TERMINATED = 143


def main() -> None:
    """The entry point of `headgate`."""
    try:
        # Imported here, so that Ctrl-C meanwhile is no traceback.
        from headgate.cli.commands import cli

        cli()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
