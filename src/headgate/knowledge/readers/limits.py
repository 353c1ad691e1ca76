"""Limits on the size of a document, so that a hostile one fails alone."""

from typing import Final

MIB: Final = 1024 * 1024

MOST_FILE_BYTES: Final = 100 * MIB
# The text of a table of a hundred mebibytes with its column names in each row.
MOST_TEXT_CHARACTERS: Final = 128 * MIB
# All parts of a DOCX together; a zip bomb exceeds it.
MOST_UNPACKED_BYTES: Final = 256 * MIB
MOST_PARTS: Final = 10_000
# Styles that inherit from each other; a hostile one inherits from itself.
MOST_STYLES: Final = 10
MOST_PAGES: Final = 20_000
# For one file.
MOST_SECONDS: Final = 60.0
# Programs and libraries are counted too.
MOST_MEMORY_BYTES: Final = 2 * 1024 * MIB
MOST_DEPTH: Final = 100
