"""A strict reader of the text format of Prometheus, version 0.0.4."""

import math
import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) (.+)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """One metric: its type, and each sample by its name and labels."""

    kind: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, suffix_name: str, **labels: str) -> float:
        return self.samples[suffix_name, tuple(sorted(labels.items()))]


def parse(text: str) -> dict[str, Family]:
    """Every family by its name; raises ValueError for anything that the format does not allow."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    families: dict[str, Family] = {}
    helped: set[str] = set()
    current = ""
    for line in text[:-1].split("\n"):
        if found := _HELP.fullmatch(line):
            if found[1] in helped or found[1] in families:
                raise ValueError(f"a second or late HELP: {line}")
            helped.add(found[1])
        elif found := _TYPE.fullmatch(line):
            if found[1] in families:
                raise ValueError(f"a second TYPE: {line}")
            current = found[1]
            families[current] = Family(found[2])
        elif found := _SAMPLE.fullmatch(line):
            _add(families, current, found)
        else:
            raise ValueError(f"not a line of the format: {line!r}")
    for name, family in families.items():
        if family.kind == "histogram":
            _check_histogram(name, family)
    return families


def _add(families: dict[str, Family], current: str, found: "re.Match[str]") -> None:
    family = families.get(current)
    if family is None or found[1] not in {current + end for end in _SUFFIXES[family.kind]}:
        raise ValueError(f"a sample outside of its family: {found[0]}")
    key = (found[1], _labels(found[2] or ""))
    if key in family.samples:
        raise ValueError(f"a second sample: {found[0]}")
    family.samples[key] = _number(found[3])


def _labels(text: str) -> Labels:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None or found[1] in labels:
            raise ValueError(f"labels that make no sense: {text}")
        labels[found[1]] = re.sub(r"\\(.)", lambda one: {"n": "\n"}.get(one[1], one[1]), found[2])
        at = found.end()
    return tuple(sorted(labels.items()))


def _number(text: str) -> float:
    if not re.fullmatch(r"[+-]?(\d+(\.\d+)?([eE][+-]?\d+)?|Inf)|NaN", text):
        raise ValueError(f"not a number: {text}")
    return float(text)


def _check_histogram(name: str, family: Family) -> None:
    buckets = [
        (math.inf if dict(labels)["le"] == "+Inf" else float(dict(labels)["le"]), count)
        for (sample, labels), count in family.samples.items()
        if sample == f"{name}_bucket"
    ]
    bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
    if bounds != sorted(set(bounds)) or bounds[-1] != math.inf or counts != sorted(counts):
        raise ValueError(f"{name}: buckets that do not add up")
    if counts[-1] != family.value(f"{name}_count"):
        raise ValueError(f"{name}: the last bucket is not everything")
