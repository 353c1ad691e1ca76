"""Words before and after a name that say what it is."""

from typing import Final

from headgate.knowledge.extraction.vocabulary import LONG_ROLES, ROLES

Cues = tuple[tuple[str, float], ...]

_ROLES: Final = (*ROLES, *LONG_ROLES)
# Type and weight, then phrases as they stand directly before the name.
_BEFORE: Final = (
    ("PERSON", 0.85, "dr .;mr .;mrs .;ms .;prof .;sir;dame;professor;miss;herr;frau"),
    ("PERSON", 0.6, "dear;hi;hello;signed by;founded by;attendees :;present :;apologies :;contact :"),
    ("PERSON", 0.6, "owner :;author :"),
    ("PERSON", 0.55, "written by;regards ,;interview with;chaired by;led by;colleague;named after"),
    ("PERSON", 0.55, "founder ,;by name ,"),
    ("PERSON", 0.5, '" said;, said;" says;, says;says;approved by;prepared by;assigned to;ceo ,'),
    ("PERSON", 0.5, "headed by"),
    ("PERSON", 0.4, "said;told;asked;thanked;explained"),
    ("PLACE", 0.6, "based in;headquartered in;located in;offices in;office in;plant in;factory in"),
    ("PLACE", 0.6, "city of;town of;coast of;north of;south of;east of;west of;laws of;laws of the"),
    ("PLACE", 0.6, "arbitration in;courts of;held in"),
    ("PLACE", 0.55, "mayor of;capital of;born in;lives in;met in;registered in;premises in;south of"),
    ("PLACE", 0.55, "people of;across"),
    ("PLACE", 0.4, "near;shops in;customers in;warehouse in;signed in;sites in;market in;markets in"),
    ("PLACE", 0.4, "staff in;trip to"),
    ("PLACE", 0.3, "in"),
    ("PLACE", 0.15, "in the;from;to;across the;through the;over the"),
    ("ORG", 0.6, "acquired;acquires;acquire;acquisition of;takeover of;shares of;subsidiary of"),
    ("ORG", 0.6, "merged with;acquired by;partnered with;partners with;partnership with"),
    ("ORG", 0.6, "competes with;compete with;competitor of;rival of;works for;worked for"),
    ("ORG", 0.6, "working for;works at;worked at;employed by;joined;invested in;customer of"),
    ("ORG", 0.6, "supplier of"),
    ("ORG", 0.55, "owned by;part of;customers of;suppliers of;contract with;agreement with"),
    ("ORG", 0.55, "partner of;hosted by;made by"),
    ("ORG", 0.5, "supplied by;manufactured by;built by;developed by;bids from;received from"),
    ("ORG", 0.5, "round in;turned to;behalf of;board of;division of;spokeswoman for;spokesman for"),
    ("ORG", 0.5, "supported by;sold by;published by;offer of;funded by"),
    ("ORG", 0.45, "supplies;supplier :;sender :;receiver :;carrier :;vendor :;company :;customer :"),
    ("ORG", 0.45, "paid by;bought from"),
    ("ORG", 0.3, "with;at;at the;against;by the;provided by"),
    ("PRODUCT", 0.6, "running on;runs on;run on;version of;creator of;powered by;written in;installed"),
    ("PRODUCT", 0.6, "versions of"),
    ("PRODUCT", 0.5, "released;launched;launches;releases;develops;makes;built on;migration to"),
    ("PRODUCT", 0.5, "migrated to;migrate to;upgrade to"),
    ("PRODUCT", 0.45, "' s;s ';users of;works with;fork of;replaces;replaces the;successor of"),
    ("PRODUCT", 0.45, "introduced;announced;author of"),
    ("PRODUCT", 0.3, "using;uses;use;with the;install;sells the;supports;data in;through;called"),
)
# The same directly after it.
_AFTER: Final = (
    ("PERSON", 0.55, "said;says;told reporters;explained;argued;added;wrote;recalled;, who;studied"),
    ("PERSON", 0.55, "holds a degree;was born"),
    ("PERSON", 0.5, "joined;presented;led the;chaired;will call;spoke;retired;resigned;graduated"),
    ("PERSON", 0.5, ", aged;founded;thanked"),
    ("ORG", 0.6, "acquired;acquires;has acquired;bought;was founded;was acquired;is headquartered"),
    ("ORG", 0.6, "is based in;employs;' s founder;' s ceo;' s customers;' s shares;' s chief"),
    ("ORG", 0.6, "' s board;' s subsidiary;' s headquarters;' s products;partners with"),
    ("ORG", 0.6, "partnered with;has partnered;competes with;invested in;supplies;manufactures"),
    ("ORG", 0.6, ", a subsidiary"),
    ("ORG", 0.55, "is a wholly;is owned by;is part of;announced;has announced;released;develops"),
    ("ORG", 0.55, "sells;also sells;hosts"),
    ("ORG", 0.5, "will supply;has not delivered;delivered;makes;makes the;produces;shareholders"),
    ("ORG", 0.5, "officials;led a;is a supplier;is a customer;merged;was sold;went public;filed"),
    ("ORG", 0.5, "hired;agreed to buy;agreed to;won the;operates;serves"),
    ("ORG", 0.3, "has;will send;wants;plans;offers;team;signed"),
    ("PRODUCT", 0.85, "™;®;( tm );( r )"),
    ("PRODUCT", 0.5, "runs on;is a new;supports;version;is written in;users;api;can be installed"),
    ("PRODUCT", 0.5, "was released;is available;is so fast"),
    ("PRODUCT", 0.4, "scanners;router;routers;phones;printers;servers;software;library;devices;app"),
    ("PRODUCT", 0.4, "database;now works with;license"),
    ("PLACE", 0.4, "office;region;airport;government;province;area;metropolitan;plant;branch"),
)


def _table(rows: tuple[tuple[str, float, str], ...]) -> dict[str, Cues]:
    table: dict[str, dict[str, float]] = {}
    for type_, weight, phrases in rows:
        for phrase in phrases.split(";"):
            cues = table.setdefault(phrase, {})
            cues[type_] = max(weight, cues.get(type_, 0.0))
    return {phrase: tuple(cues.items()) for phrase, cues in table.items()}


def _roles_before() -> tuple[tuple[str, float, str], ...]:
    places = ";".join(f"{role} {word}" for role in _ROLES for word in ("of", "at", "for", "of the", "at the"))
    people = ";".join((*(f", {role}" for role in _ROLES), *_ROLES))
    makers = ";".join(
        f"{role} of" for role in ("creator", "co-creator", "author", "inventor", "original author")
    )
    return (("ORG", 0.6, places), ("PERSON", 0.35, people), ("PRODUCT", 0.65, makers))


def _roles_after() -> tuple[tuple[str, float, str], ...]:
    articles = ("", "the ", "our ", "a ", "an ", "its ", "their ", "the company ' s ", "the project ' s ")
    people = ";".join(
        (
            *(f", {article}{role}" for role in _ROLES for article in articles),
            *(f"is {article}{role}" for role in _ROLES for article in ("", "the ")),
            *(f"( {role}" for role in _ROLES),
        )
    )
    return (("PERSON", 0.65, people),)


def _lengths(table: dict[str, Cues], place: int) -> dict[str, int]:
    """How many words the longest phrase has that has this word at that place."""
    longest: dict[str, int] = {}
    for phrase in table:
        words = phrase.split(" ")
        longest[words[place]] = max(len(words), longest.get(words[place], 0))
    return longest


BEFORE: Final = _table((*_roles_before(), *_BEFORE))
AFTER: Final = _table((*_roles_after(), *_AFTER))
# A word that ends, or begins, no phrase spares looking further.
BEFORE_BY_LAST: Final = _lengths(BEFORE, -1)
AFTER_BY_FIRST: Final = _lengths(AFTER, 0)
