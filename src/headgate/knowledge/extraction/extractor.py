"""Finds entities and relationships in the chunks of one document, by rules and without a model."""

import hashlib
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headgate.knowledge.data_model import (
    VENDOR_TYPES,
    Mention,
    NewChunk,
    NewEntity,
    NewRelationship,
    name_key,
)
from headgate.knowledge.extraction.name_candidates import NameCandidate, find_candidates
from headgate.knowledge.extraction.name_matching import (
    KnownEntity,
    KnownNameMatch,
    KnownNames,
    defined_form,
    is_initials,
    short_forms,
)
from headgate.knowledge.extraction.prose import ProseText, is_german, read_prose
from headgate.knowledge.extraction.relation_rules import EntitySpan, StatedRelation, stated_relations
from headgate.knowledge.extraction.type_evidence import (
    ORG,
    PERSON,
    PRODUCT,
    Evidence,
    add_evidence,
    bare_name,
    confidence,
    evidence_of_context,
    evidence_of_form,
)
from headgate.knowledge.graph.entity_resolution import without_legal_form
from headgate.knowledge.interfaces import ExtractedGraph

# Another number extracts from unchanged documents again.
_RULES_VERSION: Final = "2"
LEAST_CONFIDENCE: Final = 0.5
# Names longer than that are sentences in capitals.
LONGEST_NAME: Final = 200
_KNOWN_CONFIDENCE: Final = 0.95
# A short form is as sure as the long one, almost.
_SHORT: Final = 0.95
_DEFINITION: Final = 0.6
# The first ones decide; more would not change the result.
_MOST_LOOKED_AT: Final = 10
_STOPPED: Final = re.compile(r"[a-zA-Z]{2}\.\Z")
_LOWER_WORD: Final = re.compile(r"(?<![\w])[a-z]+(?![\w])")
_PRONOUN: Final = re.compile(
    r"(?:(?:In (?:\w+ )?\d{4}|Today|Since then|Later),? )?([Ii]t|[Tt]he (?:company|firm|group))(?= )"
)


@dataclass(slots=True)
class _NameSurface:
    """One spelling of a name, with its evidence in the document."""

    name: str
    legal: str
    evidence: Evidence
    # Chunk, start, end, and the end including a version.
    places: list[tuple[int, int, int, int]] = field(default_factory=list)
    # Other ways to write its legal form.
    spellings: dict[str, None] = field(default_factory=dict)
    # Whether every place is the beginning of a sentence, or in a heading.
    always_first: bool = True
    always_heading: bool = True


@dataclass(slots=True)
class _DocumentEntity:
    type: str
    name: str
    confidence: float
    aliases: dict[str, None] = field(default_factory=dict)
    mentions: list[Mention] = field(default_factory=list)


class RuleBasedExtractor:
    """The entity extractor that needs no model; it also finds the names of the known entities."""

    def __init__(self, known: Sequence[NewEntity] = ()) -> None:
        self._known = KnownNames(known)
        # Changes with the known names, so that unchanged documents are searched for new ones.
        names = sorted(
            msgspec.json.encode((one.type, one.name, one.aliases, one.confidence)) for one in known
        )
        digest = hashlib.sha256(b"\n".join(names)).hexdigest()
        self.version = f"{_RULES_VERSION}-{digest[:12]}"

    def extract(self, chunks: Sequence[NewChunk]) -> ExtractedGraph:
        return extract(chunks, self._known)


def extract(chunks: Sequence[NewChunk], known: KnownNames | None = None) -> ExtractedGraph:
    """The entities of a document with every mention, and the relationships that its sentences state.

    Names that are `known` are found in any text and keep the type that they have.
    """
    german = is_german(chunk.text for chunk in chunks)
    pages = [read_prose(chunk.text, german=german) for chunk in chunks]
    sightings = [known.find(page.text) if known is not None else [] for page in pages]
    notes = _NameCollector()
    for index, page in enumerate(pages):
        notes.add_page(index, page, sightings[index])
    subjects = notes.subjects(sightings)
    return tuple(map(_entity, subjects)), _relationships(pages, subjects)


class _NameCollector:
    def __init__(self) -> None:
        self._surfaces: dict[str, _NameSurface] = {}
        self._refused: set[str] = set()
        self._definitions: dict[str, str] = {}
        self._lower: set[str] = set()

    def add_page(self, index: int, page: ProseText, sightings: Sequence[KnownNameMatch]) -> None:
        """Note every candidate of a page; those inside a known name are known already."""
        self._lower.update(_LOWER_WORD.findall(page.text))
        ends = [sighting.end for sighting in sightings]
        for candidate in find_candidates(page):
            # A rejected name may be defined here.
            refused = candidate.surface in self._refused and not page.text.startswith(" (", candidate.end)
            if refused or _is_inside(candidate, sightings, ends):
                continue
            surface = self._surface(page.text, candidate)
            if surface is None:
                self._refused.add(candidate.surface)
                continue
            if len(surface.places) < _MOST_LOOKED_AT:
                add_evidence(surface.evidence, evidence_of_context(page.text, candidate))
            end = candidate.end - len(candidate.version)
            surface.places.append((index, candidate.start, end, candidate.end))
            surface.always_first &= candidate.first
            surface.always_heading &= page.in_heading(candidate.start)
            if other := defined_form(page.text, candidate):
                is_short = is_initials(surface.name, other)
                short, long = (surface.name, other) if is_short else (other, surface.name)
                self._definitions[short] = long

    def subjects(self, sightings: Sequence[Sequence[KnownNameMatch]]) -> list[_DocumentEntity]:
        """The entities that are sure enough, in the order of their first mention."""
        for short, long in self._definitions.items():
            if long in self._surfaces and is_initials(short, long):
                add_evidence(self._surfaces[long].evidence, {("defined", ORG): _DEFINITION})
        verdicts = {name: self._verdict(surface) for name, surface in self._surfaces.items()}
        sure = {name: verdict for name, verdict in verdicts.items() if verdict[1] >= LEAST_CONFIDENCE}
        known = {sighting.known.name: sighting.known for page in sightings for sighting in page}
        longer = self._longer({name: type_ for name, (type_, _) in sure.items()}, known)
        subjects: dict[str, _DocumentEntity] = {}
        for name, (type_, certainty) in sure.items():
            if name not in longer:
                subject = subjects.setdefault(name_key(name), _DocumentEntity(type_, name, certainty))
                self._mention(subject, self._surfaces[name], certainty)
        for one in known.values():
            _subject_of(one, subjects)
        for short, long in longer.items():
            whole = subjects.get(name_key(_last(long, longer)))
            if whole is not None and short in self._surfaces:
                # A given name is no name to be found by: other documents know other people of that name.
                if whole.type != PERSON:
                    whole.aliases[short] = None
                self._mention(whole, self._surfaces[short], round(whole.confidence * _SHORT, 2))
        for subject in subjects.values():
            if subject.name not in known:
                self._shorten(subject, subjects)
        _add_known(subjects, sightings)
        return sorted(
            (subject for subject in subjects.values() if subject.mentions), key=lambda one: min(one.mentions)
        )

    def _shorten(self, subject: _DocumentEntity, others: dict[str, _DocumentEntity]) -> None:
        """A company is also called by its name without the legal form, unless something else is called so."""
        legal = self._surfaces[subject.name].legal
        short = subject.name[: len(subject.name) - len(legal)]
        if legal and name_key(short) not in others:
            subject.aliases[short] = None
        subject.aliases.update(self._surfaces[subject.name].spellings)

    def _surface(self, text: str, candidate: NameCandidate) -> _NameSurface | None:
        if not candidate.version and candidate.surface in self._surfaces:
            return self._surfaces[candidate.surface]
        form = evidence_of_form(candidate)
        short, legal = bare_name(candidate), candidate.legal.removeprefix(",")
        if _STOPPED.search(legal):
            # The full stop may be the sentence's, and one document writes it so, one so.
            legal = legal[:-1]
        if form is None and is_initials(defined_form(text, candidate), short):
            # Common words, but the text makes a name of them.
            form = {}
        if form is None or len(short + legal) > LONGEST_NAME:
            return None
        surface = self._surfaces.setdefault(short + legal, _NameSurface(short + legal, legal, {}))
        add_evidence(surface.evidence, form)
        if legal != candidate.legal:
            surface.spellings[short + candidate.legal] = None
        return surface

    def _verdict(self, surface: _NameSurface) -> tuple[str, float]:
        """The type and how sure it is; evidence weighs less where a capital letter means little."""
        type_, certainty = confidence(surface.evidence)
        single = " " not in surface.name
        if surface.legal or any(kind in {"list", "defined"} for kind, _ in surface.evidence):
            trust = 1.0
        elif single and surface.name.lower() in self._lower:
            trust = 0.3
        else:
            trust = 0.75 if surface.always_heading else 1.0
            if single and surface.name.isupper() and surface.name.isalpha():
                trust *= 0.8
            trust *= 0.85 if single and surface.always_first else 1.0
        return type_, round(certainty * trust, 2)

    def _longer(self, types: dict[str, str], known: Mapping[str, KnownEntity]) -> dict[str, str]:
        """The long form of each short name, known names included."""
        lengths = {name: len(name) - len(self._surfaces[name].legal) for name in types}
        types = types | {name: ORG if one.type in VENDOR_TYPES else one.type for name, one in known.items()}
        lengths |= {name: len(without_legal_form(name)[0]) for name in known}
        longer = short_forms(types, self._surfaces, lengths)
        for short, long in self._definitions.items():
            if long in types and types[long] == ORG and short != long:
                longer[short] = long
        return longer

    def _mention(self, subject: _DocumentEntity, surface: _NameSurface, certainty: float) -> None:
        for chunk, start, end, whole in surface.places:
            end_of_type = whole if subject.type == PRODUCT else end
            subject.mentions.append(Mention(chunk, start, end_of_type, certainty))


def _is_inside(candidate: NameCandidate, sightings: Sequence[KnownNameMatch], ends: Sequence[int]) -> bool:
    """Whether a candidate is a known name, or a piece of one; with more words it is another name."""
    place = bisect_left(ends, candidate.start + 1)
    if place == len(sightings) or sightings[place].start >= candidate.end:
        return False
    sighting = sightings[place]
    name_end = candidate.start + len(bare_name(candidate))
    return not (candidate.start <= sighting.start and sighting.end <= candidate.end) or (
        candidate.start == sighting.start and sighting.end >= name_end
    )


def _last(name: str, longer: dict[str, str]) -> str:
    """The longest form that a name is short for."""
    seen = {name}
    while name in longer and longer[name] not in seen:
        name = longer[name]
        seen.add(name)
    return name


def _add_known(subjects: dict[str, _DocumentEntity], sightings: Sequence[Sequence[KnownNameMatch]]) -> None:
    if not any(sightings):
        return
    covered = {
        (mention.chunk_index, place)
        for subject in subjects.values()
        for mention in subject.mentions
        for place in range(mention.start, mention.end)
    }
    for index, page in enumerate(sightings):
        for start, end, known in page:
            # Acme is known, and the text has Acme Insurance Group.
            if (index, start) in covered:
                continue
            certainty = min(_KNOWN_CONFIDENCE, known.confidence)
            _subject_of(known, subjects).mentions.append(Mention(index, start, end, certainty))


def _subject_of(known: KnownEntity, subjects: dict[str, _DocumentEntity]) -> _DocumentEntity:
    key = name_key(known.name)
    subject = subjects.get(key)
    if subject is None or subject.type != known.type:
        certainty = min(_KNOWN_CONFIDENCE, known.confidence)
        subject = subjects[key] = _DocumentEntity(known.type, known.name, certainty)
    return subject


def _entity(subject: _DocumentEntity) -> NewEntity:
    own = name_key(subject.name)
    aliases = {name_key(alias): alias for alias in subject.aliases}
    return NewEntity(
        type=subject.type,
        name=subject.name,
        aliases=tuple(alias for key, alias in aliases.items() if key != own),
        confidence=subject.confidence,
        mentions=tuple(sorted(subject.mentions)),
    )


def _relationships(
    pages: Sequence[ProseText], subjects: Sequence[_DocumentEntity]
) -> tuple[NewRelationship, ...]:
    best: dict[tuple[str, str, str], float] = {}
    for one in _document_relations(pages, subjects):
        key = (one.source, one.target, one.type)
        best[key] = max(one.confidence, best.get(key, 0.0))
    better = {frozenset(key[:2]) for key in best if key[2] != "MENTIONED_WITH"}
    return tuple(
        NewRelationship(source=source, target=target, type=type_, confidence=certainty)
        for (source, target, type_), certainty in best.items()
        if type_ != "MENTIONED_WITH" or frozenset((source, target)) not in better
    )


def _document_relations(
    pages: Sequence[ProseText], subjects: Sequence[_DocumentEntity]
) -> Iterable[StatedRelation]:
    sentences: defaultdict[tuple[int, int], list[EntitySpan]] = defaultdict(list)
    for subject in subjects:
        # An imported vendor counts as an organisation.
        type_ = ORG if subject.type in VENDOR_TYPES else subject.type
        for chunk, start, end, _ in subject.mentions:
            sentence = pages[chunk].sentence_of(start)
            sentences[chunk, sentence].append(EntitySpan(start, end, subject.name, type_))
    for chunk, sentence in sorted(sentences):
        page, places = pages[chunk], sentences[chunk, sentence]
        start, end = page.bounds(sentence)
        # `It` or `The company` at the start of a sentence is the subject of the previous one.
        pronoun = _PRONOUN.match(page.text, start)
        first = min(sentences.get((chunk, sentence - 1), []), default=None)
        if pronoun is not None and first is not None and first.type in {ORG, PRODUCT}:
            places.append(EntitySpan(*pronoun.span(1), first.name, first.type))
        places.sort()
        if len({place.name for place in places}) > 1:
            yield from stated_relations(page.text, places, end)
