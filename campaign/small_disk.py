"""A small disk for the data of a gateway, which can be full and have room again."""

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

from campaign.host_faults import privileged
from testkit.async_gateway_process import AsyncGatewayProcess

_SMALL_BYTES = 2 << 20
_LARGE_BYTES = 64 << 20


class SmallDisk:
    """A tmpfs, or a limit on the size of the gateway's files where nothing may be mounted."""

    def __init__(self, directory: Path) -> None:
        self._filler = directory / "filler"
        self._directory = directory
        self.mounted = privileged() and ran(
            "mount", "-t", "tmpfs", "-o", f"size={_SMALL_BYTES}", "campaign", str(directory)
        )

    @property
    def way(self) -> str:
        """How it is made small, for the table."""
        return "a tmpfs of 2 MB" if self.mounted else "a limit on the size of files"

    def limit(self, gateway: AsyncGatewayProcess) -> None:
        """The gateway has so much room and no more."""
        if not self.mounted:
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (_SMALL_BYTES, resource.RLIM_INFINITY))

    def enlarge(self, gateway: AsyncGatewayProcess) -> None:
        """There is a lot more room."""
        if self.mounted:
            ran("mount", "-o", f"remount,size={_LARGE_BYTES}", str(self._directory))
        else:
            self.free(gateway)

    def fill(self, gateway: AsyncGatewayProcess) -> None:
        """From now on nothing can be written."""
        if not self.mounted:
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            for size in (4096, 512, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size):
                        pass

    def free(self, gateway: AsyncGatewayProcess) -> None:
        """There is room again."""
        if not self.mounted:
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            return
        self._filler.unlink()

    def unmount(self) -> None:
        """Give it back."""
        if self.mounted:
            ran("umount", "-l", str(self._directory))


def ran(*command: str) -> bool:
    """Whether a command of the system did what it should."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[SmallDisk]:
    """Such a disk at a new directory, until the block ends."""
    directory.mkdir(parents=True)
    disk = SmallDisk(directory)
    try:
        yield disk
    finally:
        disk.unmount()
