"""The code of the gateway as it was before it could record calls."""

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from bench.process import ROOT, StartFailed

COMMIT: Final = "d98fb5a"
_SECONDS: Final = 60.0


@contextmanager
def code_before() -> Iterator[Path]:
    """The directory of its packages. Raises StartFailed in a repository without its history."""
    command = ["git", "archive", "--format=tar", COMMIT, "src"]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=_SECONDS, check=False)
    if packed.returncode:
        raise StartFailed(
            f"commit {COMMIT} is not there to be compared with: {packed.stderr.decode().strip()}"
        )
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as place:
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(place, filter="data")
        yield Path(place) / "src"
