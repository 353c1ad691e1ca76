"""Searches of stored results that are made to take for ever: patterns, queries and texts (A01-A06)."""

import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from campaign import stored_results
from campaign.bystander import bystander
from campaign.stored_results import WorkerMemory, kept, matches, refused, search, text_file, timed
from campaign.trial import MEBIBYTE, Trial, Usage, case
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Answer, Client, client

# What no search may take: a job is stopped after 10 s, and its caller gets that as an error.
_JOB_SECONDS = 10.0
_GRACE_SECONDS = 2.0
# What a job may take of the machine's memory besides the text that it has mapped.
_JOB_MIB = 512.0
# The cap is 200,000, and the window of the text in which it is reached is counted to its end.
_MOST_COUNTED = 300_000
_SETTINGS = {"maxEntriesPerAgent": 100}


@asynccontextmanager
async def _searched(trial: Trial) -> AsyncIterator[tuple[AsyncGatewayProcess, Client]]:
    """A gateway whose processes for large results have started, and a client of it."""
    async with (
        trial.gateway(stored_results.servers(), settings=_SETTINGS) as gateway,
        client(gateway.port) as caller,
    ):
        small = await kept(caller, text_file(trial, "warm", ["warm up\n" * 3_000]))
        for mode in ("regex", "bm25", "fuzzy", "context"):
            await search(caller, small, "warm", mode=mode)
        yield gateway, caller


@dataclass(frozen=True, slots=True)
class _Family:
    """A pattern, a line of about so many characters that it never matches, and one that it does."""

    pattern: str
    evil: str
    end: str
    mild: str

    def lines(self, size: int) -> Iterator[str]:
        """Evil lines of `size` characters, enough for a result that is stored, and one that matches."""
        line = (self.evil * (size // len(self.evil) + 1))[:size] + self.end + "\n"
        yield from itertools.repeat(line, 1 + 20_000 // len(line))
        yield self.mild + "\n"


# A matcher that goes back tries each of these in exponential or at least quadratic time.
_FAMILIES = {
    "nested": _Family("^(a+)+$", "a", "!", "aaa"),
    "alternatives": _Family("^(a|aa|a?a)+$", "a", "!", "aaa"),
    "twice": _Family("(x+x+)+y", "x", "", "xxy"),
    "repeated": _Family("^(.*a){12}$", "a", "b", "a" * 12),
    "optional": _Family("^(a?){25}a{25}$", "b", "", "a" * 30),
    "address": _Family(r"^([\w.-])+@(([\w-])+\.)+(\w{2,4})+$", "a@a.", "!", "ann@example.org"),
    "blanks": _Family(r"\s+z$", " ", "x", "a z"),
    "words": _Family(r"^(\w+\s?)*[.]$", "word ", "?", "two words."),
}


@case(
    "A01",
    "ReDoS corpus: 8 families of patterns on stored lines of several sizes",
    "found what matches, <= 50 ms each; others unaffected",
    quick_seconds=60,
)
async def evil_patterns(trial: Trial) -> None:
    """A pattern that would backtrack for ever is matched in linear time."""
    sizes = (30, 200_000) if trial.quick else (30, 1_000, 20_000, 1_000_000)
    async with _searched(trial) as (gateway, caller), bystander(trial, gateway, "steady_echo"):
        usage = Usage(gateway)
        for size in sizes:
            slowest, plain = (0.0, ""), 0.0
            for name, family in _FAMILIES.items():
                stored = await kept(caller, text_file(trial, f"{name}{size}", family.lines(size)))
                for mode in ("regex", "context"):
                    seconds, answer = await _quickest(gateway, caller, stored, family.pattern, mode)
                    slowest = max(slowest, (seconds, f"{name}, {mode}"))
                    found, more = matches(answer)
                    right = found >= 1 and (mode == "context" or found == 1) and not more
                    trial.check(f"{name}, {size}, {mode}: found the one", right, answer.raw[:200])
                plain = max(plain, (await _quickest(gateway, caller, stored, "no such word", "regex"))[0])
            told = f"{slowest[0] * 1000:.1f} ms at most ({slowest[1]}), plain words {plain * 1000:.1f} ms"
            trial.measure(f"lines of {size}", told)
            trial.check(f"lines of {size} within 50 ms", slowest[0] <= 0.05, slowest)
        trial.measure("CPU of the gateway", usage.cpu_seconds, "s")


async def _quickest(
    gateway: AsyncGatewayProcess, caller: Client, stored: str, pattern: str, mode: str = "regex"
) -> tuple[float, Answer]:
    """The best of a few, since others use the machine too."""
    tries = [await timed(gateway, search(caller, stored, pattern, mode=mode)) for _ in range(3)]
    return min(tries, key=lambda one: one[0])


# What each is when it is written out, or how many alternatives it has, is too much for any matcher.
_BOMBS = {
    "nested repetitions": "((((((a{100}){100}){100}){100}){100}){100})",
    "repetition of a repetition": "(x{1000}){1000}",
    "optional ones": "(?:a?){1000}" * 60,
    "every sign": r"[\x{80}-\x{10FFFF}]{1000}",
    "letters": r"\pL{1000}",
    "letters of any case": r"(?i)[\pL\pN]{900}",
    "optional letters": r"(?:\pL?){30}" * 10,
    "no letters": r"[^\pL\pN\pP\pS\pZ\pC]{1000}",
    "classes": r"\pL\pN\pM\pS" * 80,
    "a class of 900": "[" + "".join(chr(0x4E00 + 2 * number) for number in range(900)) + "]{50}",
    "dots": ".{500}" * 8,
    "100 KB": "ab" * 50_000,
    "50,000 alternatives": "|".join(f"w{number}" for number in range(50_000)),
    "100,000 parentheses": "(" * 100_000 + ")" * 100_000,
    "1,000 open ones": "(" * 1_000,
    "1 MB of classes": "[a-z]" * 200_000,
}


@case(
    "A02",
    "patterns that explode when they are compiled, 100 KB, 50,000 alternatives",
    "refused <= 100 ms with the reason, RSS <= +64 MB, others unaffected",
)
async def compile_bombs(trial: Trial) -> None:
    """A pattern is refused before it has cost anything."""
    async with _searched(trial) as (gateway, caller):
        stored = await kept(caller, text_file(trial, "text", ["some text\n" * 3_000]))
        usage, workers, slowest, count = Usage(gateway), WorkerMemory(gateway), (0.0, ""), 0
        async with bystander(trial, gateway, "steady_echo"):
            for (name, pattern), mode in itertools.product(_BOMBS.items(), ("regex", "structure")):
                seconds, answer = await _quickest(gateway, caller, stored, pattern, mode)
                count += refused(answer)
                slowest = max(slowest, (seconds, f"{name}, {mode}"))
                trial.check(f"{name}, {mode}: refused", refused(answer), answer.raw[:200])
                trial.check(f"{name}, {mode}: in a few words", len(answer.raw) < 2_000, len(answer.raw))
        trial.measure("refused", f"{count} of {2 * len(_BOMBS)}")
        trial.measure("slowest", f"{slowest[0] * 1000:.1f} ms ({slowest[1]})")
        trial.measure("CPU of the gateway", usage.cpu_seconds, "s")
        trial.measure("process", f"{workers.peak_mib:.0f} MB")
        trial.check("refused within 100 ms", slowest[0] <= 0.1, slowest)
        stored_results.check_memory(trial, usage)


@case(
    "A03",
    "2.4 million hits, in lines, in one line and in JSON",
    "counted up to a cap and shown by pages; time and memory bounded",
    quick_seconds=90,
)
async def millions_of_hits(trial: Trial) -> None:
    """A million hits cannot be read, so they are not collected."""
    # The cap of each way to search is below either.
    hits = trial.size(quick=400_000, full=2_400_000)
    texts: dict[str, Iterable[str]] = {
        "lines": itertools.repeat("ab\n" * 1_000, hits // 1_000),
        "one line": itertools.repeat("ab " * 1_000, hits // 1_000),
        "JSON": itertools.chain(['["ab"'], itertools.repeat(',"ab"' * 1_000, hits // 1_000), ["]"]),
    }
    ways: dict[str, dict[str, Any]] = {
        "regex": {"pattern": "a"},
        "empty": {"pattern": "z*"},
        "over lines": {"pattern": "a.", "multiline": True},
        "offset": {"pattern": "a", "offset": 90_000},
        "with context": {"pattern": "b", "context_lines": 100},
        "context": {"pattern": "a", "mode": "context"},
        "bm25": {"pattern": "ab", "mode": "bm25"},
        "fuzzy": {"pattern": "ab", "mode": "fuzzy"},
    }
    if trial.quick:
        del texts["one line"], ways["empty"], ways["offset"], ways["with context"], ways["context"]
    async with _searched(trial) as (gateway, caller):
        stored = {name: await kept(caller, text_file(trial, name, text)) for name, text in texts.items()}
        usage, workers, slowest = Usage(gateway), WorkerMemory(gateway), (0.0, "")
        most, outcomes = 0, Counter[str]()
        async with bystander(trial, gateway, "steady_echo"):
            for (name, one), (way, options) in itertools.product(stored.items(), ways.items()):
                asking, label = caller.call("proxy_search", {"cache_id": one} | options), f"{way} in {name}"
                seconds, answer = await timed(gateway, asking)
                workers.look()
                found, more = matches(answer)
                outcomes.update([_told(answer), *(["capped"] if more else [])])
                trial.check(f"{label}: answered or stopped", _told(answer) != "failed", answer.raw[:300])
                if answer.ok:
                    slowest, most = max(slowest, (seconds, label)), max(most, found)
                    # Paragraphs, and one line, are fewer than what is found in them.
                    honest = more or way == "context" or name == "one line"
                    trial.check(f"{label}: told that there are more", honest, stored_results.note(answer))
                    trial.check(f"{label}: within the limit", len(answer.text) <= 8_000, len(answer.text))
        trial.measure("slowest", f"{slowest[0]:.2f} s ({slowest[1]})")
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        trial.measure("searches", f"{told}; {most} counted at most")
        trial.measure("process", f"{workers.peak_mib:.0f} MB")
        trial.check("no more than the cap", 0 < most <= _MOST_COUNTED, most)
        trial.check("in time", slowest[0] < _JOB_SECONDS, slowest)
        trial.check(f"process at most {_JOB_MIB:.0f} MB", workers.peak_mib <= _JOB_MIB, workers.peak_mib)
        stored_results.check_memory(trial, usage)


def _told(answer: Answer) -> str:
    """On a machine that does much else, the longest of them may take as long as no job may."""
    stopped = answer.failure is not None and answer.failure.code == "TIMEOUT"
    return "answered" if answer.ok else "stopped" if stopped else "failed"


# The largest regular expression that is taken.
_PATTERN_BYTES = 1_024
# One sign that becomes 18 when it is normalised.
_LIGATURE = "\ufdfa"


@case(
    "A04",
    "a sign that NFKC makes 18 of, as text and as pattern, in every mode",
    "answered or refused in time, memory bounded, others unaffected",
    quick_seconds=90,
)
async def normalisation_bomb(trial: Trial) -> None:
    """Folding may not make much more of a text than it is."""
    size = trial.size(quick=MEBIBYTE // 4, full=10 * MEBIBYTE)
    count = size // (len(_LIGATURE.encode()) * 1_000)
    texts = {
        "one word": itertools.repeat(_LIGATURE * 1_000, count),
        "words": itertools.repeat(f"{_LIGATURE} " * 1_000, count),
        "marks": itertools.repeat("a" + "\u0315\u0301" * 750, count * 2),
    }
    patterns = {
        "one": _LIGATURE,
        "200": _LIGATURE * 200,
        # The longest that is taken: 1,023 bytes of 1,024.
        "341": _LIGATURE * 341,
        "1,000": _LIGATURE * 1_000,
        "marks": "a\u0315\u0301",
    }
    async with _searched(trial) as (gateway, caller):
        stored = {name: await kept(caller, text_file(trial, name, text)) for name, text in texts.items()}
        asked = list(
            itertools.product(stored.values(), patterns.values(), ("regex", "bm25", "fuzzy", "context"))
        )
        await _ask_all(
            trial, gateway, caller, [(one, pattern, {"mode": mode}) for one, pattern, mode in asked]
        )


async def _ask_all(
    trial: Trial, gateway: AsyncGatewayProcess, caller: Client, asked: list[tuple[str, str, dict[str, Any]]]
) -> None:
    """Each is answered, or refused with a reason, while others do not notice."""
    usage, workers, outcomes, slowest = (
        Usage(gateway),
        WorkerMemory(gateway),
        {"ok": 0, "refused": 0},
        (0.0, ""),
    )
    async with bystander(trial, gateway, "steady_echo"):
        for stored, pattern, options in asked:
            seconds, answer = await timed(gateway, search(caller, stored, pattern, **options))
            label = f"{options['mode']}, {len(pattern)} characters"
            slowest = max(slowest, (seconds, label))
            # A pattern that is not too large is answered: a refusal is no way to be in time.
            must_answer = options["mode"] in ("regex", "context") and len(pattern.encode()) <= _PATTERN_BYTES
            right = answer.ok or (refused(answer) and not must_answer)
            trial.check(f"{label}: answered or refused", right, answer.raw[:300])
            outcomes["ok" if answer.ok else "refused"] += 1
    trial.measure("answered", f"{outcomes['ok']}, refused {outcomes['refused']}")
    trial.measure("slowest", f"{slowest[0]:.2f} s ({slowest[1]})")
    trial.measure("process", f"{workers.peak_mib:.0f} MB")
    trial.check("in time", slowest[0] < _JOB_SECONDS, slowest)
    trial.check(f"process at most {_JOB_MIB:.0f} MB", workers.peak_mib <= _JOB_MIB, workers.peak_mib)
    stored_results.check_memory(trial, usage)


@case(
    "A05",
    "fuzzy: a query of 1 KB and the longest that is taken, on 1 MB and 10 MB of ever new words",
    "refused at once, or answered within its time; memory bounded",
    quick_seconds=90,
)
async def fuzzy_queries(trial: Trial) -> None:
    """What is too long to compare is refused; what is taken is answered in linear time."""
    dice = random.Random(5)
    long, longest = _words(dice, 100, 10), " ".join(_words(dice, 16, 11).split())
    async with _searched(trial) as (gateway, caller):
        usage, workers = Usage(gateway), WorkerMemory(gateway)
        for size in (MEBIBYTE, trial.size(quick=3, full=10) * MEBIBYTE):
            stored = await kept(caller, text_file(trial, f"{size}", _lines(dice, size)))
            label = f"{size // MEBIBYTE} MB"
            async with bystander(trial, gateway, "steady_echo"):
                over, refusal = await timed(gateway, search(caller, stored, long[:1_024], mode="fuzzy"))
                many, first = await timed(
                    gateway, search(caller, stored, longest, mode="fuzzy", threshold=0.5)
                )
                one, second = await timed(gateway, search(caller, stored, longest[:11], mode="fuzzy"))
            told = f"1 KB refused in {over * 1000:.1f} ms, 16 words {_told(first)} {many:.2f} s"
            trial.measure(label, f"{told}, one word {_told(second)} {one:.2f} s")
            trial.check(f"{label}: 1 KB refused", refused(refusal), refusal.raw[:300])
            trial.check(f"{label}: at once", over < 1, f"{over:.2f} s")
            for name, answer in (("16 words", first), ("one word", second)):
                trial.check(
                    f"{label}: {name} answered or stopped", _told(answer) != "failed", answer.raw[:300]
                )
                in_time = answer.seconds < _JOB_SECONDS + _GRACE_SECONDS
                trial.check(f"{label}: {name} in time", in_time, f"{answer.seconds:.2f} s")
        trial.measure("process", f"{workers.peak_mib:.0f} MB")
        trial.check(f"process at most {_JOB_MIB:.0f} MB", workers.peak_mib <= _JOB_MIB, workers.peak_mib)
        stored_results.check_memory(trial, usage)


def _words(dice: random.Random, count: int, length: int) -> str:
    """Random words, of which a dictionary would get no smaller."""
    letters = dice.choices("abcdefghijklmnopqrstuvwxyz", k=count * length)
    return " ".join("".join(letters[at : at + length]) for at in range(0, len(letters), length))


def _lines(dice: random.Random, size: int) -> Iterator[str]:
    for _ in range(size // 1_000):
        yield _words(dice, 91, 10)[:999] + "\n"


@case(
    "A06",
    "BM25 over 100 MB, twice",
    "time and memory bounded; others unaffected; the second no slower than the first",
    quick_seconds=90,
    full_seconds=180,
)
async def ranked_search(trial: Trial) -> None:
    """The words of a text that fills no memory are counted elsewhere."""
    size = trial.size(quick=16 * MEBIBYTE, full=100 * MEBIBYTE)
    dice = random.Random(6)
    some = list(_lines(dice, MEBIBYTE))
    text = (dice.choice(some) for _ in range(size // 1_000))
    async with _searched(trial) as (gateway, caller):
        path = text_file(trial, "text", itertools.chain(text, ["the needle in it all\n"]))
        usage = Usage(gateway)
        async with bystander(trial, gateway, "steady_echo"):
            began = time.monotonic()
            stored = await kept(caller, path)
            trial.measure("stored after", time.monotonic() - began, "s")
            workers = WorkerMemory(gateway)
            query = f"needle all {some[7][:10]}"
            asked = [await timed(gateway, search(caller, stored, query, mode="bm25")) for _ in range(3)]
        first, *again = (seconds for seconds, _ in asked)
        answers = [answer for _, answer in asked]
        trial.measure("text", f"{size // MEBIBYTE} MB")
        trial.measure("first", first, "s")
        trial.measure("again", min(again), "s")
        trial.measure("process", f"{workers.peak_mib:.0f} MB, the text included")
        trial.check("answered", all(answer.ok for answer in answers), answers[0].raw[:300])
        trial.check("the needle comes first", answers[0].text.startswith("the needle"), answers[0].text[:100])
        trial.check("the same each time", len({answer.text for answer in answers}) == 1)
        trial.check("in time", first < _JOB_SECONDS, f"{first:.2f} s")
        trial.check("no slower again", min(again) <= first * 1.5, f"{min(again):.2f} s after {first:.2f} s")
        bound = _JOB_MIB + size / MEBIBYTE
        trial.check(f"process at most {bound:.0f} MB", workers.peak_mib <= bound, workers.peak_mib)
        stored_results.check_memory(trial, usage)
