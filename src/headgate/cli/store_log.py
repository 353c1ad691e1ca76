"""Holds back what the store of the documents logs, where the last sentence of a command says the same."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.domain.errors import StoreUnavailable

_LOGGER = logging.getLogger("headgate.storage")


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """A StoreAway ends the block, and nothing of it is logged; otherwise all of it is, when the block ends.

    Or from the moment on when what is given here is called.
    """
    held = _Held()
    _LOGGER.addHandler(held)
    _LOGGER.propagate = False
    try:
        yield held.pass_on
    except StoreUnavailable:
        held.records.clear()
        raise
    finally:
        held.pass_on()


class _Held(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def pass_on(self) -> None:
        _LOGGER.removeHandler(self)
        _LOGGER.propagate = True
        for record in self.records:
            _LOGGER.handle(record)
        self.records.clear()
