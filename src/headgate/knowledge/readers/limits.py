"""How much of a document is taken: whoever sends a hostile one gets a sentence, and the rest goes on."""

from typing import Final

MIB: Final = 1024 * 1024

MOST_FILE_BYTES: Final = 100 * MIB
# What a table of a hundred mebibytes may become with the names of its columns in each row.
MOST_TEXT_CHARACTERS: Final = 128 * MIB
# Of a DOCX, all parts together: a bomb says that it has more, or has no more than it says.
MOST_UNPACKED_BYTES: Final = 256 * MIB
MOST_PARTS: Final = 10_000
# Of which one is made from the other; a hostile one is made from itself.
MOST_STYLES: Final = 10
MOST_PAGES: Final = 20_000
# For one file.
MOST_SECONDS: Final = 60.0
# Programs and libraries are counted too.
MOST_MEMORY_BYTES: Final = 2 * 1024 * MIB
MOST_DEPTH: Final = 100
