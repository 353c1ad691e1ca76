"""Days in the names of files."""

import pytest

from headgate.knowledge.readers.text import day_in_name


@pytest.mark.parametrize(
    "file",
    [
        "2026-09-14-jour-fixe.txt",
        "notes/2025/jour-fixe_2026-09-14.txt",
        "20260914_protokoll.pdf",
        "v2 2026.09.14.md",
        "2026_09_14.csv",
        "2026-09-14T10-30 (2026-09-14).txt",
    ],
)
def test_a_day_in_the_name_is_found(file: str) -> None:
    assert day_in_name(file) == "2026-09-14"


@pytest.mark.parametrize(
    "file",
    [
        "plan.txt",
        "2026-09-14/plan.txt",
        "2026-13-40.txt",
        "14.09.2026.txt",
        "2026-09.txt",
        "120260914.txt",
        "20260914103000.txt",
        "30260914.txt",
        "2026-0914.txt",
        "2026-01-01 to 2026-03-31.txt",
    ],
)
def test_what_is_no_day_or_could_be_two_is_none(file: str) -> None:
    assert day_in_name(file) == ""
