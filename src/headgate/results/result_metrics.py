"""Counters of excerpts, reads, and the characters and tokens kept out of conversations."""

from collections.abc import Iterable

from msgspec import Raw

from headgate.results.content import character_count
from headgate.results.jobs import JobResult
from headgate.results.result_structure import compact_size
from headgate.results.token_estimate import estimate_tokens


def reply_size(texts: Iterable[bytes], structured: bytes | None) -> tuple[int, int]:
    """How many characters and about how many tokens a model reads of a reply, notices included.

    Text and structure mostly say the same, and clients show one of them: the larger counts.
    """
    read = list(texts)
    beside = structured or b""
    return (
        max(sum(map(character_count, read)), compact_size(Raw(beside))),
        max(sum(map(estimate_tokens, read)), estimate_tokens(beside)),
    )


class ResultMetrics:
    """What an operator wants to know; everything counts from the start of the gateway."""

    def __init__(self) -> None:
        self.excerpts = 0
        self.reads_by_tool: dict[str, int] = {}
        self.refused = 0
        self.characters_received = 0
        self.characters_shown = 0
        # How many tokens all results had, and what was shown of them; both are estimates.
        self._tokens_received = 0
        self._tokens_shown = 0

    def count_excerpt(self, done: JobResult) -> None:
        """A result was cut before it was shown."""
        self.excerpts += 1
        self._count_received(done)
        self._count_shown(done)

    def count_read(self, tool: str, done: JobResult, *, fresh: bool) -> None:
        """A tool has read a result; a fresh one would have been shown whole otherwise."""
        self.reads_by_tool[tool] = self.reads_by_tool.get(tool, 0) + 1
        if fresh:
            self._count_received(done)
        self._count_shown(done)

    def _count_received(self, done: JobResult) -> None:
        self.characters_received += done.original_size
        self._tokens_received += done.original_tokens

    def _count_shown(self, done: JobResult) -> None:
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
            **{("result_reads", f'{{tool="{tool}"}}'): count for tool, count in self.reads_by_tool.items()},
        }
