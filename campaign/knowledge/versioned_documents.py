"""A tree of documents in editions: every paragraph says of which, so that a mixture shows."""

import random
import re
from pathlib import Path

_ORGANISATIONS = (
    "Acme Corporation",
    "Globex GmbH",
    "Initech Inc",
    "Umbrella Ltd",
    "Northwind Bank",
    "Contoso AG",
    "Fabrikam LLC",
    "Wayfarer University",
)
_SUBJECTS = (
    "invoices", "delivery", "warranty", "storage", "travel", "security", "backups", "contracts", "holidays",
    "hardware", "pensions", "insurance", "licences", "audits", "training", "reviews",
)  # fmt: skip
_VERBS = ("covers", "limits", "explains", "replaces", "extends", "requires", "forbids", "lists")
_EDITION = re.compile(r"edition (\d+)")


class Shelf:
    """The documents of a case; the same seed gives the same ones."""

    def __init__(self, top: Path, documents: int, seed: int = 1, paragraphs: int = 12) -> None:
        self.top = top
        self.editions: dict[str, int] = {}
        self._paragraphs = paragraphs
        self._dice = random.Random(seed)
        self._next = 0
        top.mkdir(parents=True, exist_ok=True)
        for _ in range(documents):
            self.add()

    def add(self) -> str:
        """One more document."""
        self._next += 1
        name = f"{_SUBJECTS[self._next % len(_SUBJECTS)]}/{self._next:05d}.{('md', 'txt')[self._next % 2]}"
        self.editions[name] = 0
        self.revise(name)
        return name

    def revise(self, name: str) -> None:
        """The next edition of a document."""
        self.editions[name] += 1
        path = self.top / name
        path.parent.mkdir(exist_ok=True)
        # A reader gets one of the two meanwhile, and no ingestion takes the temporary name.
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text(text(name, self.editions[name], self._paragraphs))
        draft.replace(path)

    def remove(self, name: str) -> None:
        """It is gone."""
        (self.top / name).unlink()
        del self.editions[name]

    def stir(self, share: float = 0.3) -> None:
        """Some documents change, one leaves and one comes."""
        names = sorted(self.editions)
        for name in self._dice.sample(names, max(1, int(len(names) * share))):
            self.revise(name)
        self.remove(self._dice.choice(names))
        self.add()

    def files(self) -> dict[str, int]:
        """The edition of each document by the name that a store gives it."""
        return {f"{self.top.name}/{name}": edition for name, edition in self.editions.items()}


def text(name: str, edition: int, paragraphs: int) -> str:
    """The whole document."""
    dice = random.Random(f"{name} {edition}")
    parts = [f"# Rules {name.partition('/')[2]}\n"]
    for number in range(paragraphs):
        if number % 4 == 3:
            parts.append(f"## Part {number}\n")
        parts.append(_paragraph(dice, number, edition))
    return "\n".join(parts)


def _paragraph(dice: random.Random, number: int, edition: int) -> str:
    first, second = dice.sample(_ORGANISATIONS, 2)
    facts = " ".join(
        f"Clause {dice.randrange(1000)} {dice.choice(_VERBS)} {' and '.join(dice.sample(_SUBJECTS, 2))}."
        for _ in range(8)
    )
    return f"{first} acquired {second}. This is paragraph {number} of edition {edition}. {facts}\n"


def editions_in(passage: str) -> set[int]:
    """Of which editions the paragraphs of a passage are."""
    return {int(number) for number in _EDITION.findall(passage)}
