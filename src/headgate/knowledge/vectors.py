"""What makes vectors of texts, as ingestion and search need it."""

from collections.abc import Sequence
from typing import Protocol


class Vectors(Protocol):
    """An embedder that is asked on the loop and works elsewhere; vectors are little-endian float32."""

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def fingerprint(self) -> str:
        """Changes when the same text would get another vector."""

    async def load(self) -> None:
        """Be ready, which may take a moment; raises ConfigError when the model cannot be used."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has, once it is loaded; 0 as long as nobody knows."""

    async def question(self, text: str) -> bytes:
        """The vector of what somebody asks, soon or not at all; raises EmbedderAway."""

    async def passages(self, texts: Sequence[str]) -> list[bytes]:
        """One vector for each text; raises EmbedderAway."""
