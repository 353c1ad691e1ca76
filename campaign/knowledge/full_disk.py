"""The disk is full while documents come in (K09)."""

import contextlib
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from campaign.knowledge.inspection import content, differences, faults
from campaign.knowledge.knowledge_gateway import told_once
from campaign.knowledge.knowledge_process import Place, file_place
from campaign.knowledge.versioned_documents import Shelf
from campaign.trial import MEBIBYTE, Trial, case

_SMALL = 4
_LARGE = 64


@case(
    "K09",
    "the disk is full while documents come in, and has room again later",
    "one sentence; the store is whole and searched meanwhile; the next ingestion goes on",
    quick_seconds=120,
    full_seconds=300,
)
async def full_disk(trial: Trial) -> None:
    """What was stored stays, and the rest comes when there is room."""
    place, twin = file_place(trial), file_place(trial, "twin")
    shelf = Shelf(trial.directory / "shelf", trial.size(quick=100, full=600))
    with _small_disk(place.data) as enlarge:
        trial.measure("by", f"a tmpfs of {_SMALL} MB" if enlarge else "a limit on the size of files")
        ended = await _without_room(place, shelf, limited=enlarge is None)
        trial.measure("said", ended.strip().splitlines()[-1])
        trial.check("one sentence", told_once(ended), ended[-600:])
        trial.check("the log says why", "the disk is full" in ended or not enlarge, ended[-600:])
        await _judge(trial, place, shelf)
        if enlarge:
            enlarge()
        again = await place.run("ingest", str(shelf.top), "--json")
        trial.check("with room it goes on", again.code == 0, again.err)
        await twin.run("ingest", str(shelf.top))
        wrong = [*await faults(place), *differences(await content(place), await content(twin))]
        trial.measure("differences in the end", len(wrong))
        trial.check("in the end everything is there", not wrong, wrong[:3])


async def _judge(trial: Trial, place: Place, shelf: Shelf) -> None:
    """What is there after it."""
    wrong = await faults(place)
    trial.check("the store is whole", not wrong, wrong[:3])
    found = await place.run("search", "invoices", "--json")
    stored = len((await content(place))["sources"])  # type: ignore[arg-type]
    trial.measure("stored before it was full", f"{stored} of {len(shelf.editions)}")
    trial.check("some documents came in, and not all", 0 < stored < len(shelf.editions), stored)
    trial.check("it is searched meanwhile", found.document.get("total_found", 0) > 0, found.err)


async def _without_room(place: Place, shelf: Shelf, *, limited: bool) -> str:
    """What an ingestion says that does not fit."""
    async with place.started("ingest", str(shelf.top)) as child:
        if limited:
            size = _SMALL * MEBIBYTE
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        _, err = await child.communicate()
    return f"it ended with {child.returncode}" if child.returncode != 2 else err.decode(errors="replace")


@contextlib.contextmanager
def _small_disk(directory: Path) -> Iterator[Callable[[], None] | None]:
    """A small disk there, and what makes it larger; None where nothing may be mounted."""
    option = f"size={_SMALL}m"
    if not _ran("mount", "-t", "tmpfs", "-o", option, "campaign", str(directory)):
        yield None
        return
    try:
        yield lambda: _remount(directory)
    finally:
        _ran("umount", "-l", str(directory))


def _remount(directory: Path) -> None:
    _ran("mount", "-o", f"remount,size={_LARGE}m", str(directory))


def _ran(*command: str) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False
