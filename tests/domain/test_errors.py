"""The table of error codes holds those of every package."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import headgate
from headgate.domain.errors import ERROR_CODES, HeadgateError

SOURCE = Path(headgate.__file__).parent


def subclasses(kind: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from subclasses(one)


def test_the_table_of_codes_is_complete_and_has_no_code_of_its_own() -> None:
    for path in SOURCE.glob("*/errors.py"):
        import_module(f"headgate.{path.parent.name}.errors")
    ours = {one.code for one in subclasses(HeadgateError) if one.__module__.startswith("headgate.")}
    assert ours == ERROR_CODES.keys()
