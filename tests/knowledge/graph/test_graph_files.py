"""Entities and relationships come from files, and errors in a file name its line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.data_model import Entity, NewEntity, NewRelationship, Relationship
from headgate.knowledge.errors import InvalidGraph
from headgate.knowledge.graph.entity_resolution import EndpointResolver
from headgate.knowledge.graph.graph_files import graph_lines, read_graph


def test_json_lines_hold_both() -> None:
    entities, relationships = read_graph(
        "vendors.jsonl",
        [
            '\ufeff{"kind": "entity", "id": "v1", "type": "org", "name": " Acme", "aliases": ["A", "A"]}\r\n',
            "\n",
            '{"type": "org", "name": "Globex", "id": 7, "confidence": 0.5, "attributes": {"tier": 1}}\n',
            '{"kind": "relationship", "source": "v1", "target": 7, "type": "supplies"}\n',
            '{"source": "Acme", "target": "Globex", "type": "USES", "confidence": 1}',
        ],
    )
    assert entities == [
        NewEntity(type="ORG", name="Acme", aliases=("A",), external_id="v1"),
        NewEntity(type="ORG", name="Globex", external_id="7", confidence=0.5, attributes={"tier": 1}),
    ]
    assert relationships == [
        NewRelationship(source="v1", target="7", type="SUPPLIES"),
        NewRelationship(source="Acme", target="Globex", type="USES"),
    ]


def test_a_table_of_entities_keeps_other_columns_as_attributes() -> None:
    entities, relationships = read_graph(
        "/data/Vendors.CSV",
        [
            "\ufeffName,Type,ID,aliases,confidence,Country Code\r\n",
            "\r\n",
            'Acme,vendor,v1,"ACME Co| Acme, Inc.|",0.9,NO\r\n',
            '"Globex\n',
            'Works",org,,,,\n',
            ",,,,,\n",
        ],
    )
    assert entities == [
        NewEntity(
            type="VENDOR",
            name="Acme",
            aliases=("ACME Co", "Acme, Inc."),
            confidence=0.9,
            attributes={"Country Code": "NO"},
            external_id="v1",
        ),
        NewEntity(type="ORG", name="Globex\nWorks"),
    ]
    assert relationships == []


@pytest.mark.parametrize("mark", [";", "\t"])
def test_columns_may_stand_between_other_marks_as_spreadsheets_write_them(mark: str) -> None:
    header = mark.join(("name", "Type", "id", "aliases", "confidence", "city"))
    row = mark.join(('"Acme, Inc."', "org", "v1", '"AC;ACM"', "0,9", "Oslo"))
    entities, _ = read_graph("vendors.csv", ["\n", f"{header}\n", f"{row}\n"])
    assert entities == [
        NewEntity(
            type="ORG",
            name="Acme, Inc.",
            aliases=("AC", "ACM"),
            confidence=0.9,
            external_id="v1",
            attributes={"city": "Oslo"},
        )
    ]
    below, _ = read_graph("vendors.csv", [f'{mark}""{mark} \n', f"{header}\n", f"{row}\n"])
    assert below == entities
    _, (owns,) = read_graph("r.csv", [f"source{mark}target{mark}type\n", f"a{mark}b{mark}owns\n"])
    assert (owns.source, owns.target) == ("a", "b")
    with pytest.raises(InvalidGraph, match=r"line 1 is no header; columns that are needed: name,type or"):
        read_graph("r.csv", [f"nom{mark}type\n"])


def test_a_table_of_relationships_is_known_by_its_header() -> None:
    entities, relationships = read_graph(
        "edges.csv", ["source,target,type,confidence,since", "Acme,Globex,supplies,0.7,2019"]
    )
    assert entities == []
    assert relationships == [
        NewRelationship(
            source="Acme", target="Globex", type="SUPPLIES", confidence=0.7, attributes={"since": "2019"}
        )
    ]


@pytest.mark.parametrize(
    ("cell", "aliases"), [("A|B; C", ("A", "B; C")), ("A; B ;", ("A", "B")), ("A, Inc.", ("A, Inc.",))]
)
def test_aliases_stand_between_bars_or_else_semicolons(cell: str, aliases: tuple[str, ...]) -> None:
    (entity,), _ = read_graph("vendors.csv", ["name,type,aliases", f'Acme,org,"{cell}"'])
    assert entity.aliases == aliases


def test_a_column_that_tells_the_kind_is_no_attribute() -> None:
    (entity,), _ = read_graph("vendors.csv", ["Kind,name,type", "entity,Acme,org"])
    assert entity == NewEntity(type="ORG", name="Acme")
    (machine,), _ = read_graph("machines.csv", ["kind,name,type", "lathe,M1,machine"])
    assert machine.attributes == {"kind": "lathe"}


@pytest.mark.parametrize(
    "lines",
    [
        ["kind,name,type,source,target"],
        ["kind,name,type", "entity,Acme,org", "relationship,Acme,uses"],
        ["kind,source,target,type", "entity,Acme,Globex,org"],
    ],
)
def test_a_table_of_both_kinds_is_refused_with_the_way_out(lines: list[str]) -> None:
    with pytest.raises(InvalidGraph, match=r"one kind per CSV, use JSONL for both$"):
        read_graph("both.csv", lines)


@pytest.mark.parametrize("kind", ["source", "chunk", "mention"])
def test_a_whole_export_is_told_from_a_graph(kind: str) -> None:
    with pytest.raises(InvalidGraph, match=r"^all\.jsonl is a whole export") as refused:
        read_graph("all.jsonl", [GOOD, f'{{"kind": "{kind}", "id": 1}}'])
    assert "headgate knowledge export --what imported" in refused.value.hint


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl"])
def test_an_empty_file_has_nothing(name: str) -> None:
    assert read_graph(name, []) == ([], [])


GOOD = '{"type": "org", "name": "Acme", "id": "a"}'


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "is no JSON; each line is one object"),
        ("[1]", "is no object; each line is one object"),
        ('{"confidence": NaN}', "is no JSON; each line is one object"),
        ("[" * 100_000, "is no JSON; each line is one object"),
        ("\ud800", "is no JSON; each line is one object"),
        ('{"kind": "edge"}', "has kind 'edge'; allowed: entity, relationship"),
        ('{"type": "org"}', "has no name; allowed: a text of 1 to 200 characters"),
        ('{"type": "org", "name": "  "}', "has name '  '; allowed: a text of 1 to 200 characters"),
        ('{"type": "org", "name": 5}', "has name '5'; allowed: a text of 1 to 200 characters"),
        (
            '{"type": "org", "name": "x\\u0000y"}',
            "has name 'x\\x00y'; allowed: a text without the character NUL",
        ),
        ('{"type": "", "name": "x"}', "has type ''; allowed: a text of 1 to 200 characters"),
        ('{"type": "org", "name": "x", "id": "a"}', "has the id 'a' of line 1; each id is given once"),
        ('{"type": "org", "name": "x", "id": true}', "has id 'True'; allowed: a text of 1 to 200 characters"),
        (
            '{"type": "org", "name": "x", "confidence": 1.1}',
            "has confidence '1.1'; allowed: a number from 0 to 1",
        ),
        (
            '{"type": "org", "name": "x", "confidence": true}',
            "has confidence 'True'; allowed: a number from 0 to 1",
        ),
        ('{"type": "org", "name": "x", "aliases": "y"}', "has aliases 'y'; allowed: a list of names"),
        (
            '{"type": "org", "name": "x", "aliases": [""]}',
            "has aliases ''; allowed: a text of 1 to 200 characters",
        ),
        ('{"type": "org", "name": "x", "attributes": 1}', "has attributes '1'; allowed: an object"),
        ('{"source": "Acme", "type": "uses"}', "has no target; allowed: a text of 1 to 200 characters"),
        (
            '{"type": "org", "name": "x", "colour": 1}',
            (
                "has 'colour'; allowed: kind, id, type, name, aliases, confidence, attributes "
                "(others go into attributes)"
            ),
        ),
    ],
)
def test_a_wrong_line_is_told_with_file_and_number_and_what_is_allowed(line: str, what: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        read_graph("/home/somebody/vendors.jsonl", [GOOD, "", line])
    assert str(refused.value) == f"vendors.jsonl, line 3 {what}"


@pytest.mark.parametrize(
    ("name", "good", "wrong", "what"),
    [
        ("vendors.jsonl", GOOD, "[1]", "is no object; each line is one object"),
        ("vendors.csv", "name,type", "Acme", "has 1 cells; the header has 2"),
    ],
)
def test_all_wrong_lines_are_told_at_once(name: str, good: str, wrong: str, what: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        read_graph(name, [good, wrong, "", wrong])
    assert str(refused.value) == f"{name} has 2 wrong lines. Line 2 {what}. Line 4 {what}."
    assert refused.value.hint.endswith("nothing was imported")
    with pytest.raises(InvalidGraph, match=rf"has 13 wrong lines\. .* Line 11 {what}\. And 3 more\.$"):
        read_graph(name, [good, *[wrong] * 13])


@pytest.mark.parametrize("length", [200, 201])
def test_a_name_has_at_most_two_hundred_characters(length: int) -> None:
    lines = [f'{{"type": "org", "name": "{"x" * length}"}}']
    if length == 200:
        assert len(read_graph("a.jsonl", lines)[0][0].name) == 200
    else:
        with pytest.raises(InvalidGraph):
            read_graph("a.jsonl", lines)


@pytest.mark.parametrize(
    ("lines", "number", "what"),
    [
        (["name,colour"], 1, "is no header; columns that are needed: name,type or source,target,type"),
        (["name,type,name"], 1, "has a column without a name, or two of one name"),
        (["name,type", "Acme"], 2, "has 1 cells; the header has 2"),
        (["name,type", '"a\n', 'b",org', "Acme,"], 4, "has no type; allowed: a text of 1 to 200 characters"),
        (
            ["name,type,confidence", "Acme,org,high"],
            2,
            "has confidence 'high'; allowed: a number from 0 to 1",
        ),
        (["name,type,confidence", "Acme,org,nan"], 2, "has confidence 'nan'; allowed: a number from 0 to 1"),
        (
            ["name,type,id", "Acme,org,1", "Globex,org,1"],
            3,
            "has the id '1' of line 2; each id is given once",
        ),
        (["source,target,type", ",Globex,uses"], 2, "has no source; allowed: a text of 1 to 200 characters"),
    ],
)
def test_a_wrong_row_is_told_with_the_line_that_it_begins_on(
    lines: list[str], number: int, what: str
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        read_graph("C:\\data\\vendors.csv", lines)
    assert str(refused.value) == f"vendors.csv, line {number} {what}"


def test_quotes_that_never_end_are_no_csv() -> None:
    with pytest.raises(InvalidGraph, match=r"vendors\.csv, line 2 is no CSV"):
        read_graph("vendors.csv", ["name,type", '"Acme,org', "Globex,org"])


def test_who_has_no_id_is_called_by_a_name_or_else_by_an_id_that_is_nobody_elses() -> None:
    entities = [
        Entity(id=1, type="ORG", name="Acme", aliases=("GLOBEX", "Initech"), external_id="entity-2"),
        Entity(id=2, type="ORG", name="Globex"),
        Entity(id=3, type="ORG", name="ENTITY-4"),
        Entity(id=4, type="ORG", name="Initech"),
    ]
    related = [Relationship(id=1, source_id=3, target_id=2, type="OWNS")]
    read, (owns,) = read_graph("export.jsonl", graph_lines(entities, related))
    assert [entity.external_id for entity in read] == ["entity-2", "entity-2-x", "", "entity-4-x"]
    assert (owns.source, owns.target) == ("ENTITY-4", "entity-2-x")


def test_an_id_that_two_imports_gave_to_different_entities_is_written_once() -> None:
    entities = [
        Entity(id=1, type="ORG", name="Acme", external_id="V-1"),
        Entity(id=2, type="ORG", name="Globex", external_id="V-1"),
        Entity(id=3, type="ORG", name="Initech", external_id="v-1"),
        Entity(id=4, type="ORG", name="Hooli", external_id="ENTITY-2"),
    ]
    related = [Relationship(id=1, source_id=2, target_id=3, type="OWNS")]
    read, (owns,) = read_graph("export.jsonl", graph_lines(entities, related))
    assert [entity.external_id for entity in read] == ["V-1", "entity-2-x", "entity-3", "ENTITY-2"]
    ends = EndpointResolver()
    for place, entity in enumerate(read, 1):
        ends.add(place, entity, own=True)
    assert ends.resolve_all([owns]) == [(2, 3, owns)]


names = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
    .map(str.strip)
    .filter(bool)
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
attributes = st.dictionaries(names, values, max_size=3)
sure = st.floats(0, 1)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Entity], list[Relationship]]:
    count = draw(st.integers(1, 5))
    ids = draw(
        st.lists(names | st.just(""), min_size=count, max_size=count, unique_by=lambda id: id or object())
    )
    entities = [
        Entity(
            id=place,
            type=draw(names).upper()[:200].strip() or "X",
            name=draw(names),
            aliases=tuple(draw(st.lists(names, max_size=2, unique=True))),
            confidence=draw(sure),
            attributes=draw(attributes),
            external_id=id,
        )
        for place, id in enumerate(ids, 1)
    ]
    ends = st.integers(1, count)
    relationships = [
        Relationship(id=place, source_id=draw(ends), target_id=draw(ends), type="USES", confidence=draw(sure))
        for place in range(draw(st.integers(0, 4)))
    ]
    return entities, relationships


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_what_is_written_reads_back_to_the_same_graph(graph: tuple[list[Entity], list[Relationship]]) -> None:
    entities, relationships = graph
    read, related = read_graph("export.jsonl", graph_lines(entities, relationships))
    ids = {new.external_id or new.name: old.id for new, old in zip(read, entities, strict=True)}
    assert len(ids) == len(entities)
    for new, old in zip(read, entities, strict=True):
        assert (new.type, new.name, new.aliases) == (old.type.upper(), old.name, old.aliases)
        assert (new.confidence, new.attributes) == (old.confidence, old.attributes)
        assert new.external_id == old.external_id or not old.external_id
    assert [(ids[one.source], ids[one.target], one.type, one.confidence) for one in related] == [
        (one.source_id, one.target_id, one.type, one.confidence) for one in relationships
    ]
