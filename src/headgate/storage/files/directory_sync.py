"""Makes the entries of a directory durable."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make durable which files there are in it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
