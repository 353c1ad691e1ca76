"""What the operator asked for: flags, environment and file, read once into one frozen value."""

from headgate.config.loading import load
from headgate.config.settings import Flags, Settings
from headgate.config.watch import changes, servers_to_run

__all__ = ["Flags", "Settings", "changes", "load", "servers_to_run"]
