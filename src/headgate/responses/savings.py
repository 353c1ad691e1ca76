"""Counts what was kept out of conversations."""

from collections.abc import Iterable

from msgspec import Raw

from headgate.responses.anatomy import compact_size
from headgate.responses.content import characters
from headgate.responses.jobs import Done
from headgate.responses.tokens import tokens_of


def shown(texts: Iterable[bytes], structured: bytes | None) -> tuple[int, int]:
    """How many characters and about how many tokens a model reads of a reply, notices included.

    Text and structure mostly say the same, and clients show one of them: the larger counts.
    """
    read = list(texts)
    beside = structured or b""
    return (
        max(sum(map(characters, read)), compact_size(Raw(beside))),
        max(sum(map(tokens_of, read)), tokens_of(beside)),
    )


class Savings:
    """What an operator wants to know; everything counts from the start of the gateway."""

    def __init__(self) -> None:
        self.excerpts = 0
        self.looks: dict[str, int] = {}
        self.refused = 0
        self.characters_received = 0
        self.characters_shown = 0
        # How many tokens all results had, and what was shown of them; both are estimates.
        self._tokens_received = 0
        self._tokens_shown = 0

    def excerpt(self, done: Done) -> None:
        """A result was cut before it was shown."""
        self.excerpts += 1
        self._received(done)
        self._shown(done)

    def look(self, tool: str, done: Done, *, fresh: bool) -> None:
        """A tool has read a result; a fresh one would have been shown whole otherwise."""
        self.looks[tool] = self.looks.get(tool, 0) + 1
        if fresh:
            self._received(done)
        self._shown(done)

    def _received(self, done: Done) -> None:
        self.characters_received += done.original_size
        self._tokens_received += done.original_tokens

    def _shown(self, done: Done) -> None:
        self.characters_shown += done.processed_size
        self._tokens_shown += done.processed_tokens

    @property
    def saved_tokens(self) -> int:
        """About so many tokens less than if every result had been shown whole."""
        return max(0, self._tokens_received - self._tokens_shown)

    def counters(self) -> dict[tuple[str, str], int]:
        """By name and label."""
        return {
            ("results_excerpted", ""): self.excerpts,
            ("result_reads_refused", ""): self.refused,
            ("result_characters_received", ""): self.characters_received,
            ("result_characters_shown", ""): self.characters_shown,
            **{("result_reads", f'{{tool="{tool}"}}'): count for tool, count in self.looks.items()},
        }
