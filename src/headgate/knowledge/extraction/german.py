"""What keeps the rules, which are made for English, from wrong names in German texts."""

import re
from collections.abc import Iterable
from typing import Final

from headgate.knowledge.extraction.word_lists import words

# Words that hardly stand in texts of other languages that we read.
_FREQUENT: Final = words(
    """
    auf aus bei das dem den der die durch ein eine einem einen einer für ist mit nicht oder sich sind sowie
    und vom von werden wird zum zur über
    """
)
_WORD: Final = re.compile(r"[^\W\d_]+")
# Of this many words one is frequent, and there are a few of them.
_ONE_OF: Final = 12
_FEWEST: Final = 3
# With a capital they begin a sentence, and no name.
FIRST_WORDS: Final = words(
    """
    ab als alle auch aus bei beim bis bitte das dem der die diese dieser dieses durch ein eine einem einen
    einer eines er falls für gegen im ist kein keine mit nach nicht oder ohne seit sie siehe sowie und unser
    unsere unter vom von vor wenn wir zu zum zur zwischen über
    """
)
# Before the name of a company.
COMPANY: Final = words("Firma Gesellschaft Fa")
# Before a number they name a thing of the text, not a product.
NUMBERED: Final = words(
    """
    abs absatz abschnitt abteilung anhang anlage artikel auftrag bestellung blatt etage fax filiale gebäude
    halle haus jahr kapitel konto kunde los monat nr nummer police pos position postfach punkt raum rechnung
    satz seite stand stufe tag teil tel telefax telefon tisch typ vertrag werk woche zeile ziffer zimmer
    """
)
_STREET: Final = re.compile(r"(?:stra(?:ß|ss)e|str|gasse|allee|platz|weg|ufer)\Z")


def is_german(texts: Iterable[str]) -> bool:
    """Whether these are German, where all nouns have capitals: then a number behind one says little."""
    spoken = [word for text in texts for word in _WORD.findall(text)]
    frequent = sum(word in _FREQUENT for word in spoken)
    return frequent >= max(_FEWEST, len(spoken) / _ONE_OF)


def is_numbered(word: str) -> bool:
    """Whether a number behind the word counts things, or is that of a house."""
    lower = word.lower()
    return lower in NUMBERED or _STREET.search(lower) is not None
