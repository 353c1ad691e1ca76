"""Says which tools an operator hides or renames that the server does not have: most are misspelt."""

import logging
from collections.abc import Collection

from headgate.domain.listing import PLAIN_CURATION, Curation

log = logging.getLogger("headgate.catalog")

# Of one line in the log.
_MOST_NAMED = 20


class IdleWishes:
    """Warns of them once, and again when they are other ones."""

    def __init__(self) -> None:
        self._said: dict[str, Curation] = {}

    def look(self, server: str, curation: Curation, tools: Collection[str]) -> None:
        """The operator wants this of the server, which has these tools."""
        if not (curation.hidden or curation.renamed):
            self._said.pop(server, None)
            return
        idle = curation.idle(tools)
        if idle not in (PLAIN_CURATION, self._said.get(server)):
            extra = {
                "server": server,
                "hide": list(idle.hidden[:_MOST_NAMED]),
                "rename": list(idle.renamed)[:_MOST_NAMED],
            }
            log.warning("the server has no such tools to hide or rename", extra=extra)
        self._said[server] = idle
