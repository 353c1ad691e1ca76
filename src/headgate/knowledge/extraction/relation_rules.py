"""Relation extraction: patterns of the text between two names, and the relationships a sentence states."""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from headgate.knowledge.extraction.lexicon import LONG_ROLES, ROLES

_ORG: Final = frozenset({"ORG"})
_PERSON: Final = frozenset({"PERSON"})
_PLACE: Final = frozenset({"PLACE"})
_PRODUCT: Final = frozenset({"PRODUCT"})
_INVESTOR: Final = _ORG | _PERSON


class _Rule(NamedTuple):
    """Between a name of one type and a later name of another type this text states something."""

    type: str
    left: frozenset[str]
    right: frozenset[str]
    between: str
    confidence: float = 0.85
    # The right one does it to the left one.
    turned: bool = False


# A defined term, an apposition.
_ASIDE: Final = r"(?: ?\([^()]{1,40}\))?(?:,[^,;]{1,60},)?"
_ADVERB: Final = (
    r"(?:has|have|had|will|is to|been|also|now|recently|previously|formerly|currently|today"
    r"|said [\w ]{1,25}that it)"
)
_ON: Final = rf"{_ASIDE} (?:{_ADVERB} )*"
_THE: Final = r"(?:the |a |an |its |their |our )?"
_FEW: Final = r"(?:[\w-]+ ){0,3}"
_OWN: Final = r"(?:['\u2019]s|['\u2019])"
_ROLE: Final = f"(?i:{'|'.join(sorted(map(re.escape, (*LONG_ROLES, *ROLES)), key=len, reverse=True))})"


def _does(verbs: str) -> str:
    """`A has recently acquired B`."""
    return rf"{_ON}(?:{verbs}) {_THE}"


def _is(nouns: str) -> str:
    """`A is a wholly owned subsidiary of B`, `A, a subsidiary of B`."""
    return rf"(?:{_ON}(?:is|was|are|were|became|remains|been)|{_ASIDE},|) ?{_THE}{_FEW}(?:{nouns}) {_THE}"


_MAKE: Final = (
    "makes|made|develops|developed|produces|manufactures|manufactured|sells|sold|released|releases|launched"
    "|launches|announced|introduced|builds|built|unveiled|publishes"
)
_MADE: Final = "(?:made|developed|produced|manufactured|sold|built|created|published|released) by"
_BEGIN: Final = "(?:co-)?(?:founded|established|started|set up)"
_PARTNERS: Final = (
    "(?:partners|partnered|partnering|teamed up|works together|cooperates|collaborates|formed a partnership"
    "|signed a partnership) with"
)
RULES: Final = (
    _Rule("ACQUIRED", _ORG, _ORG, _does("acquired|acquires|buys|bought|took over|agreed to (?:buy|acquire)")),
    _Rule("ACQUIRED", _ORG, _ORG, _is("(?:acquired|bought|taken over) by"), turned=True),
    _Rule("ACQUIRED", _ORG, _ORG, rf"{_OWN} (?:acquisition|takeover|purchase) of "),
    _Rule("PART_OF", _ORG, _ORG, _is("(?:subsidiary|part|division|unit|branch|brand) of")),
    _Rule("PART_OF", _ORG, _ORG, _is("owned by")),
    _Rule("PART_OF", _ORG, _ORG, rf"(?:,? which|,? and)?{_does('owns|controls')}", turned=True),
    _Rule("PART_OF", _ORG, _ORG, r", the parent (?:company )?of ", turned=True),
    # Before the roles, of which a founder's is one.
    _Rule("FOUNDED", _ORG, _PERSON, _is(rf"{_BEGIN} (?:in \w+ )?(?:\d{{4}} )?by"), 0.9, turned=True),
    _Rule("FOUNDED", _PERSON, _ORG, rf"(?:, who)?{_does(_BEGIN)}", 0.9),
    _Rule("FOUNDED", _PERSON, _ORG, _is("(?:co-?)?founder of"), 0.95),
    _Rule("FOUNDED", _ORG, _PERSON, rf"{_OWN} (?:co-?)?founder,? ", 0.95, turned=True),
    _Rule(
        "WORKS_FOR", _PERSON, _ORG, _is(rf"{_ROLE}(?: (?:for|in) [\w ]{{1,30}})?,? (?:of|at|for|with)"), 0.9
    ),
    _Rule("WORKS_FOR", _PERSON, _ORG, rf"(?:, who)?{_does('(?:works?|worked|working) (?:for|at|with)')}"),
    _Rule("WORKS_FOR", _PERSON, _ORG, rf", who (?:is|was|became) {_THE}{_FEW}{_ROLE} (?:of|at) {_THE}", 0.9),
    _Rule("WORKS_FOR", _PERSON, _ORG, _does("joined|joins|came to|moved to|is employed by|leads|heads"), 0.8),
    _Rule("WORKS_FOR", _ORG, _PERSON, rf"{_OWN} {_FEW}{_ROLE},? ", turned=True),
    _Rule("WORKS_FOR", _ORG, _PERSON, rf" {_ROLE} ", 0.8, turned=True),
    _Rule("LOCATED_IN", _ORG, _PLACE, _is(rf"{_FEW}(?:based|headquartered|located|registered) in")),
    _Rule("LOCATED_IN", _ORG, _PLACE, rf"{_ASIDE},? whose {_FEW}(?:headquarters|office|seat) (?:is|are) in "),
    _Rule("LOCATED_IN", _ORG, _PLACE, rf"{_OWN} {_FEW}(?:headquarters|head office|seat) (?:is|are) in "),
    _Rule("LOCATED_IN", _ORG, _PLACE, r"(?:,[^,;.]{1,50} from| in| \(| in the) ?", 0.7),
    _Rule("PARTNER_OF", _ORG, _ORG, _does(_PARTNERS)),
    _Rule("PARTNER_OF", _ORG, _ORG, _is("partner of")),
    _Rule("SUPPLIES", _ORG, _ORG, _does("supplies|supplied|supply|delivers to|sells to")),
    _Rule("SUPPLIES", _ORG, _ORG, _is("(?:supplier|vendor|provider) (?:of|to|for)")),
    _Rule("SUPPLIES", _ORG, _ORG, _is("(?:customer|client) of"), turned=True),
    _Rule("SUPPLIES", _ORG, _ORG, _is("supplied by"), turned=True),
    _Rule(
        "SUPPLIES",
        _ORG,
        _ORG,
        _does("(?:buys|bought|purchased|orders|ordered) [^,;]{1,40} from"),
        0.75,
        turned=True,
    ),
    _Rule(
        "USES", _ORG, _ORG | _PRODUCT, _does("uses|use|used|adopted|deployed|relies on|runs on|switched to")
    ),
    _Rule("USES", _PRODUCT, _PRODUCT, _does("runs on|is built on|uses|is based on|relies on|requires")),
    _Rule("USES", _PRODUCT, _ORG, _is("used by"), turned=True),
    _Rule("MAKES", _ORG, _PRODUCT, rf"{_does(_MAKE)}{_FEW}"),
    _Rule("MAKES", _PRODUCT, _ORG, _is(_MADE), turned=True),
    _Rule(
        "MAKES",
        _PRODUCT,
        _ORG,
        rf"(?: is|,) (?:an?|the) (?:[\w/-]+ ){{1,5}}(?:from|by|of) {_THE}",
        0.8,
        turned=True,
    ),
    _Rule("MAKES", _ORG, _PRODUCT, rf"{_OWN} (?:[a-z]+ ){{0,2}}", 0.8),
    _Rule("COMPETES_WITH", _ORG, _ORG, _does("(?:competes|compete|competed|competing) with")),
    _Rule("COMPETES_WITH", _ORG, _ORG, _is("(?:competitor|rival) of")),
    _Rule("INVESTED_IN", _INVESTOR, _ORG, _does(r"(?:invested|invests|took a stake) (?:[^,;]{1,30} )?in")),
    _Rule("INVESTED_IN", _INVESTOR, _ORG, _does(r"(?:led|joined) (?:a|the) [^,;]{1,40} round (?:in|of|for)")),
)
_PATTERNS: Final = tuple((rule, re.compile(rf"{rule.between}\Z")) for rule in RULES)
# After a list of organisations.
SYMMETRIC_RULES: Final = (
    (
        "PARTNER_OF",
        re.compile(r",? (?:are|were|became|formed|form|signed) (?:[\w-]+ ){0,2}(?:partners|partnership)\b"),
    ),
    ("COMPETES_WITH", re.compile(r",? (?:are|were) (?:[\w-]+ ){0,2}(?:competitors|rivals)\b|,? compete\b")),
)


MENTIONED_WITH: Final = "MENTIONED_WITH"
# More are a list without a relation.
_MOST_IN_SENTENCE: Final = 12
_LONGEST_GAP: Final = 120
_BESIDE_CONFIDENCE: Final = 0.5
_TOGETHER_CONFIDENCE: Final = 0.8
_LIST: Final = re.compile(r"(?:, | and | or |, and |, or | and the |, the )\Z")
# Directly behind a name: it is that one whose it is.
_OWNING: Final = "'\u2019("


class EntitySpan(NamedTuple):
    start: int
    end: int
    name: str
    type: str


class StatedRelation(NamedTuple):
    source: str
    target: str
    type: str
    confidence: float


def stated_relations(text: str, places: Sequence[EntitySpan], end: int) -> list[StatedRelation]:
    """The relationships in one sentence that ends at `end`; every pair at most once, the surest first."""
    groups = _groups(text, places)
    found: dict[frozenset[str], StatedRelation] = {}
    for left, right in combinations(groups, 2):
        gap = text[left[-1].end : right[0].start]
        # An employee in Lagos does not locate the company.
        has_person = gap == " in " and any(place.type == "PERSON" for place in places if place < left[0])
        if len(gap) <= _LONGEST_GAP and not has_person:
            _keep(found, _between(gap, left, right))
    for group in groups:
        _keep(found, _within(text[group[-1].end : end], group))
    _keep(found, _beside(places))
    return list(found.values())


def _groups(text: str, places: Sequence[EntitySpan]) -> list[list[EntitySpan]]:
    """Names that are listed one after the other, and so have the same part in the sentence."""
    groups: list[list[EntitySpan]] = []
    for place in places[:_MOST_IN_SENTENCE]:
        last = groups[-1][-1] if groups else None
        if last is not None and last.type == place.type and _LIST.match(text[last.end : place.start]):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _between(gap: str, left: list[EntitySpan], right: list[EntitySpan]) -> Iterable[StatedRelation]:
    for rule, pattern in _PATTERNS:
        if left[0].type in rule.left and right[0].type in rule.right and pattern.match(gap):
            # In `Dresden, Germany` the first one is the location.
            ends = right[:1] if rule.type == "LOCATED_IN" else right
            # `A and B's founder`: the owner is the nearest one.
            begins = left[-1:] if gap[:1] in _OWNING or rule.type == "LOCATED_IN" else left
            for first in begins:
                for second in ends:
                    source, target = (second, first) if rule.turned else (first, second)
                    yield StatedRelation(source.name, target.name, rule.type, rule.confidence)
            return


def _within(after: str, group: list[EntitySpan]) -> Iterable[StatedRelation]:
    if len(group) < 2 or group[0].type != "ORG":
        return
    for type_, pattern in SYMMETRIC_RULES:
        if pattern.match(after):
            for first, second in pairwise(group):
                yield StatedRelation(first.name, second.name, type_, _TOGETHER_CONFIDENCE)


def _beside(places: Sequence[EntitySpan]) -> Iterable[StatedRelation]:
    for first, second in combinations(places[:_MOST_IN_SENTENCE], 2):
        types = {first.type, second.type}
        if "ORG" in types and types <= {"ORG", "PERSON", "PRODUCT"}:
            source, target = (first, second) if first.type == "ORG" else (second, first)
            yield StatedRelation(source.name, target.name, MENTIONED_WITH, _BESIDE_CONFIDENCE)


def _keep(found: dict[frozenset[str], StatedRelation], more: Iterable[StatedRelation]) -> None:
    for one in more:
        pair = frozenset((one.source, one.target))
        if len(pair) == 2 and (pair not in found or found[pair].confidence < one.confidence):
            found[pair] = one
