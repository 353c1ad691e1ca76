"""What the figures were measured on, in words that fit any machine."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.peers.install import node_script

_PACKAGES: Final = ("uvicorn", "uvloop", "httptools", "msgspec")


def describe() -> dict[str, str]:
    """Processor, cores, memory and the versions that matter; installs the peer whose Node it names."""
    return describe_python() | {"node": _node()}


def describe_python() -> dict[str, str]:
    """The same for a section in which nothing runs on Node."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
    }


def load_average() -> float:
    """How many processes wanted to run during the last minute, ours included."""
    return float(Path("/proc/loadavg").read_text().split()[0])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _node() -> str:
    command = [node_script()[0], "--version"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)
    return answer.stdout.strip().removeprefix("v")
