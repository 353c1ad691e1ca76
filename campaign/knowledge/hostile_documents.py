"""Hostile documents are ingested among good ones (K05)."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

from campaign.knowledge import hostile_files
from campaign.knowledge.inspection import faults
from campaign.knowledge.knowledge_process import Ended, Place, file_place
from campaign.trial import MEBIBYTE, Trial, case
from testkit import procfs

# The process that parses may have two gibibytes; the one that asks it holds a file and its chunks.
_MOST_MEBIBYTES = 2560
_GOOD = 25


@case(
    "K05",
    "hostile documents: bombs, loops, depth, 50 MB lines, wrong bytes, links, pipes, files that vanish",
    "ends in time and memory; each is reported in one sentence; all the good ones are found",
    quick_seconds=240,
    full_seconds=900,
)
async def hostile_documents(trial: Trial) -> None:
    """A bad document costs its own reading and nothing else."""
    top, place = trial.directory / "shelf", file_place(trial)
    top.mkdir()
    words = hostile_files.good(top, _GOOD)
    size, depth = trial.size(quick=1, full=50), trial.size(quick=5_000, full=100_000)
    hostile_files.write(top, trial.directory / "outside", size, depth)
    hostile_files.records(top / "records.jsonl", 100)
    started = time.monotonic()
    ended, peak = await _watched(place, top)
    trial.measure("took", time.monotonic() - started, "s")
    trial.measure("RSS", f"{peak / MEBIBYTE:.0f} MB at most by samples, the parser included")
    trial.check("it ends well", ended.get("added", 0) >= _GOOD, ended)
    trial.check(f"at most {_MOST_MEBIBYTES} MB", peak < _MOST_MEBIBYTES * MEBIBYTE, peak / MEBIBYTE)
    failed = {one["file"]: one["reason"] for one in ended.get("failed", [])}
    trial.measure("told of", len(failed))
    odd = [
        f"{file}: {reason}" for file, reason in failed.items() if not _is_sentence(reason, trial.directory)
    ]
    untold = [name for name in hostile_files.HOPELESS if f"{top.name}/{name}" not in failed]
    trial.check("each unreadable one is reported", not untold, untold)
    trial.check("each in one sentence", not odd, odd[:3])
    await _look(trial, place, words)


async def _look(trial: Trial, place: Place, words: list[str]) -> None:
    """The good ones are there, and nothing from outside."""
    wrong = await faults(place)
    trial.check("the store is whole", not wrong, wrong[:3])
    async with place.open() as store:
        found = {chunk.file: chunk async for chunk in store.iter_chunks()}
        texts = [chunk.text async for chunk in store.iter_chunks()]
    whole = "\n".join(texts)
    missing = [word for word in words if word not in whole]
    trial.measure("good ones", f"{len(words) - len(missing)} of {len(words)}")
    trial.measure("chunks", len(texts))
    trial.check("all the good ones are there", not missing, missing[:3])
    trial.check("nothing from outside", hostile_files.CANARY not in whole)
    trial.check("no link was followed", not any("/out" in file or "/round" in file for file in found))


async def _watched(place: Place, top: Path) -> tuple[dict[str, Any], int]:
    """The summary of an ingestion, and the most memory of all its processes together."""
    peak = 0
    async with place.started("ingest", str(top), "--json") as child:
        talk = asyncio.create_task(child.communicate())
        restless = asyncio.create_task(_restless(top))
        while not talk.done():
            with contextlib.suppress(OSError):
                pids = (child.pid, *procfs.descendants(child.pid))
                peak = max(peak, sum(procfs.resident_bytes(pid) for pid in pids))
            await asyncio.wait([talk], timeout=0.05)
        restless.cancel()
        out, err = await talk
    ended = Ended(child.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"), 0.0)
    return ended.document or {"code": ended.code, "error": ended.err[-2000:]}, peak


async def _restless(top: Path) -> None:
    """Files come, grow, change their kind and go while they are read."""
    number = 0
    while True:
        number += 1
        path = top / f"restless{number % 7}.txt"
        with contextlib.suppress(OSError):
            match number % 4:
                case 0:
                    path.unlink()
                case 1:
                    path.mkdir()
                case 2:
                    path.rmdir()
                case _:
                    path.write_text("restless " * number)
        await asyncio.sleep(0.005)


def _is_sentence(reason: str, directory: Path) -> bool:
    """One line, and nothing of the machine's."""
    inside = str(directory) in reason or "Traceback" in reason or "internal error" in reason
    return bool(reason) and "\n" not in reason and len(reason) < 200 and not inside
