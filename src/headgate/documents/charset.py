"""The encodings that pages name, as browsers read them: what many call Latin-1 is more than that."""

import codecs
from typing import Final

# What browsers read, by the names of Python's codecs.
_READ: Final = {
    **{
        name: name
        for name in (
            *("utf-8", "cp866", "cp874", "cp932", "cp949", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"),
            *("gb18030", "big5hkscs", "euc_jp", "iso2022_jp"),
            *(f"cp{number}" for number in range(1250, 1259)),
            *(f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
        )
    },
    # Each of these is part of the other, and pages that name the smaller one are written in the larger.
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    # A page in which that name can be read is never written in it.
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "utf-8"),
}
# Names that Python does not know.
_FOREIGN: Final = {
    "unicode-1-1-utf-8": "utf-8",
    **dict.fromkeys(("windows-874", "dos-874"), "cp874"),
    **dict.fromkeys(("gb_2312-80", "iso-ir-58"), "gb18030"),
    "cn-big5": "big5hkscs",
    "windows-31j": "cp932",
    "windows-949": "cp949",
    "koi8-ru": "koi8-u",
    "koi": "koi8-r",
    **dict.fromkeys(("iso-8859-8-i", "iso-8859-8-e", "logical", "visual"), "iso8859-8"),
}


def codec_of(label: str) -> str | None:
    """The codec for what a page calls its encoding; None where browsers know no such name."""
    name = label.lower()
    while name.startswith("x-"):
        name = name.removeprefix("x-")
    if name in _FOREIGN:
        return _FOREIGN[name]
    try:
        # Python has many that no page may ask for.
        return _READ.get(codecs.lookup(name).name)
    except LookupError:
        return None
