"""What the tools that read stored results reply, of one block or of many."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.compact_tables import from_compact_tables
from headgate.results.jobs import (
    META_KEY,
    ExploreParams,
    JobResult,
    PageUnit,
    ProjectionMode,
    ProjectionParams,
    QueryParams,
    ReadJob,
    ReadParams,
    SearchMode,
    SearchParams,
)
from headgate.results.pipeline import ProcessingError, ProcessorResult, processed
from headgate.results.read_result import read_result
from tests.results.sample_results import (
    IMAGE,
    LINK,
    blocks_of,
    facts_of,
    members_of,
    parsed_result,
    resource,
    result,
    results,
    text,
    texts_of,
    words_of,
)

ID = "0123456789abcdef01234567"
USERS = [{"id": number, "email": f"u{number}@x.org", "age": number % 90} for number in range(300)]
EMAILS = ProjectionParams(fields=("email",))


def looked(data: bytes, *, room: int = 8000, **more: Any) -> JobResult:
    return read_result(parsed_result(data), ReadJob(tool="proxy_read", cache_id=ID, room=room, **more))


def shown(data: bytes, **more: Any) -> str:
    """The first block of the reply, which is what was asked for and nothing else."""
    return texts_of(looked(data, **more).result)[0]


def note(data: bytes, **more: Any) -> str:
    return texts_of(looked(data, **more).result)[-1]


_BY_ALL = [
    {"projection": ProjectionParams(fields=("name", "rows.name", "total"))},
    {"projection": ProjectionParams(exclude=("name",), mode=ProjectionMode.EXCLUDE)},
    {"search": SearchParams(pattern="a")},
    {"search": SearchParams(pattern="quoted cafe", mode=SearchMode.BM25)},
    {"search": SearchParams(pattern="nmae", mode=SearchMode.FUZZY)},
    {"search": SearchParams(pattern="naïve", mode=SearchMode.CONTEXT)},
    {"search": SearchParams(pattern="name", mode=SearchMode.STRUCTURE)},
    {"exploration": ExploreParams()},
    {"reading": ReadParams(offset=1)},
    {"reading": ReadParams(unit=PageUnit.CHARACTERS, limit=10)},
]


# Of any result.


@settings(max_examples=40)
@given(data=results(most_blocks=12), told=st.sampled_from(_BY_ALL), room=st.integers(60, 600))
def test_any_reply_has_what_was_asked_for_first_and_the_note_last_and_keeps_what_is_said_of_the_call(
    data: bytes, told: dict[str, Any], room: int
) -> None:
    given = {
        name: part if name == "projection" else type(part)(**{**_fields(part), "room": room})
        for name, part in told.items()
    }
    reply = looked(data, room=room, **given)
    if reply.error is not None:
        assert not reply.result
        assert len(reply.error) > 10
        return
    was, made = members_of(data), members_of(reply.result)
    assert texts_of(reply.result)[-1].startswith(f"cache_id: {ID}")
    for name in ("isError", "resultType"):
        assert made.get(name) == was.get(name)
    meta = members_of(bytes(made["_meta"]))
    size = json.loads(bytes(meta.pop(META_KEY)))["processed_size"]
    *shown, note = texts_of(reply.result)
    # JSON has at least two characters, also in a block whose share of the room is one.
    assert size <= room + len(shown) + len(note)
    assert meta == members_of(bytes(was.get("_meta", b"{}")))
    assert reply.typed is ("resultType" in was)
    assert reply.original_size == parsed_result(data).size


def _fields(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__struct_fields__}


@settings(max_examples=40)
@given(data=results(), room=st.integers(60, 600), fresh=st.booleans())
def test_a_filter_keeps_every_block_and_only_its_text_is_another(
    data: bytes, room: int, *, fresh: bool
) -> None:
    reply = looked(
        data, room=room, fresh=fresh, projection=ProjectionParams(fields=("name", "rows.name", "total"))
    )
    *blocks, _ = blocks_of(reply.result)
    before = blocks_of(data)
    if not texts_of(data) or parsed_result(data).text_is_summary:
        # What stands in structure is looked at instead, and comes first.
        blocks = blocks[1:]
    elif parsed_result(data).reads_as_one:
        # Several values are one array, and what is no text stays behind it.
        blocks, before = blocks[1:], [block for block in before if words_of(block) is None]
    assert len(blocks) == len(before)
    for block, was in zip(blocks, before, strict=True):
        if words_of(was) is None:
            assert block == was
        else:
            assert json.loads(block).keys() == json.loads(was).keys()


@settings(max_examples=40)
@given(
    rows=st.lists(st.sampled_from(USERS), max_size=60),
    room=st.integers(60, 900),
    envelope=st.sampled_from([False, True]),
)
def test_the_pages_of_a_filter_give_the_whole_together(
    rows: list[dict[str, Any]], room: int, *, envelope: bool
) -> None:
    data = result(text(json.dumps({"total": 3, "users": rows} if envelope else rows)))
    fields = ("total", "users.email") if envelope else ("email",)
    found: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        reply = looked(data, room=room, offset=offset, projection=ProjectionParams(fields=fields))
        page = json.loads(texts_of(reply.result)[0])
        assert len(texts_of(reply.result)[0]) <= room
        # Where everything around them is too large, the members are on pages of their own.
        found += page.get("users", []) if envelope else page
        offset = facts_of(reply.result).get("page", {}).get("next_offset")
    assert found == [{"email": row["email"]} for row in rows]


@settings(max_examples=40)
@given(
    words=st.lists(st.sampled_from(["", "a", "line", "Straße", "x" * 30]), min_size=1, max_size=60),
    room=st.integers(40, 400),
    blocks=st.integers(1, 12),
)
def test_the_pages_of_a_text_give_the_whole_together(words: list[str], room: int, blocks: int) -> None:
    data = result(*(text("\n".join(words[at::blocks])) for at in range(blocks)))
    meant = "\n".join("\n".join(words[at::blocks]) for at in range(blocks))
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        reply = looked(data, room=room, reading=ReadParams(offset=offset, room=room))
        page = texts_of(reply.result)[0]
        told = facts_of(reply.result)["read"]
        assert len(page) <= room
        found += page.split("\n")[: told["shown"]]
        offset = told.get("next_offset")
    # A line end behind the last line begins no other.
    assert "\n".join(found) == meant.removesuffix("\n")


@settings(max_examples=40)
@given(count=st.integers(1, 40), room=st.integers(90, 900), blocks=st.booleans())
def test_the_pages_of_rows_give_the_whole_together(count: int, room: int, *, blocks: bool) -> None:
    rows = USERS[:count]
    # Some servers send one block for each row.
    data = result(*(text(json.dumps(row)) for row in rows)) if blocks else result(text(json.dumps(rows)))
    found: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        reply = looked(data, room=room, reading=ReadParams(offset=offset, room=room))
        page = json.loads(texts_of(reply.result)[0])
        # One object alone is read by its members.
        found += page if isinstance(page, list) else [page]
        offset = facts_of(reply.result)["read"].get("next_offset")
    assert found == rows


# Filtering.


def test_fields_of_every_text_and_of_what_stands_in_structure_are_kept() -> None:
    data = result(
        text('{"email":"a","age":1}', annotations={"priority": 1}),
        IMAGE,
        text("plain words"),
        resource('[{"email":"b","age":2}]'),
        structuredContent={"email": "a", "age": 1},
        isError=False,
    )
    told = json.loads(looked(data, projection=EMAILS).result)
    assert told["content"][0] == text('{"email":"a"}', annotations={"priority": 1})
    assert told["content"][1:3] == [IMAGE, text("plain words")]
    assert told["content"][3]["resource"]["text"] == '[{"email":"b"}]'
    assert told["structuredContent"] == {"email": "a"}
    assert told["isError"] is False


def test_the_note_in_structure_keeps_the_one_of_a_gateway_behind() -> None:
    behind = {"notice": "1 of 9", "cache_id": "9"}
    user = {"name": "a" * 200, "email": "b"}
    data = result(text(json.dumps(user)), structuredContent=user | {"_headgate": behind})
    expected = ProjectionParams(exclude=("email",))
    structured = json.loads(looked(data, fresh=True, projection=expected).result)["structuredContent"]
    assert structured["_headgate"]["upstream"] == behind
    assert structured["_headgate"]["notice"] == note(data, projection=expected)
    assert structured["name"] == user["name"]


def test_an_array_in_structure_has_no_place_for_a_note_and_is_left_out() -> None:
    data = result(text('[{"email":"a","age":1}]'), structuredContent=[{"email": "a", "age": 1}])
    told = json.loads(looked(data, projection=EMAILS).result)
    assert told["structuredContent"] == [{"email": "a"}]
    assert "structuredContent" not in json.loads(looked(data, fresh=True, projection=EMAILS).result)


def test_structure_that_does_not_fit_beside_the_text_is_left_out() -> None:
    rows = [{"email": "e" * 30}] * 4
    data = result(text(json.dumps(rows)), structuredContent={"email": "e" * 200})
    assert "structuredContent" in json.loads(looked(data, projection=EMAILS).result)
    assert "structuredContent" not in json.loads(looked(data, room=250, projection=EMAILS).result)


def test_without_a_text_what_stands_in_structure_is_filtered() -> None:
    data = result(IMAGE, structuredContent={"email": "a", "age": 1})
    told = json.loads(looked(data, projection=EMAILS).result)
    assert told["content"][:2] == [text('{"email":"a"}'), IMAGE]


def test_of_very_many_texts_one_array_is_made_and_filtered() -> None:
    data = result(*(text(json.dumps(user)) for user in USERS[:20]))
    assert json.loads(shown(data, projection=EMAILS)) == [{"email": user["email"]} for user in USERS[:20]]


def test_of_several_texts_the_largest_is_paged_and_the_others_are_shown_once() -> None:
    data = result(text("introduction"), text(json.dumps(USERS)))
    first, then = (looked(data, room=500, offset=at, projection=EMAILS).result for at in (0, 7))
    assert texts_of(first)[0] == "introduction"
    assert json.loads(texts_of(then)[0])[0] == {"email": USERS[7]["email"]}
    assert "more with offset" in texts_of(first)[-1]


def test_a_field_that_nothing_has_is_said_with_the_nearest() -> None:
    told = note(result(text(json.dumps(USERS))), projection=ProjectionParams(fields=("id", "emial")))
    assert "not found: emial" in told
    assert "email" in told.partition("nearest")[2]


def test_a_path_that_is_none_is_said_and_nothing_is_shown() -> None:
    reply = looked(result(text("[]")), projection=ProjectionParams(fields=("a[",)))
    assert not reply.result
    assert "a[" in (reply.error or "")


def test_rows_that_nearly_fit_with_what_is_around_them_are_on_two_pages() -> None:
    rows = [{"email": "u0@x.org"}] * 5
    data = result(text(json.dumps({"total": 3, "users": rows})))
    fields = ProjectionParams(fields=("total", "users"))
    for room in range(100, 126):
        first = looked(data, room=room, projection=fields).result
        offset = facts_of(first)["page"]["next_offset"]
        then = looked(data, room=room, offset=offset, projection=fields).result
        pages = [json.loads(texts_of(page)[0]) for page in (first, then)]
        assert pages[0]["users"] + pages[1]["users"] == rows
        assert pages[0]["total"] == pages[1]["total"] == 3


def test_a_text_that_only_sums_up_what_stands_in_structure_stays_beside_its_fields() -> None:
    data = result(text("300 users"), IMAGE, structuredContent={"users": USERS})
    told = json.loads(looked(data, projection=ProjectionParams(fields=("users[0].email",))).result)
    assert json.loads(told["content"][0]["text"]) == {"users": [{"email": "u0@x.org"}]}
    assert told["content"][1:3] == [text("300 users"), IMAGE]
    assert json.loads(shown(data, reading=ReadParams(path="users[7]"))) == USERS[7]


# The others.


def test_a_search_shows_the_elements_that_match_and_counts_them() -> None:
    data = result(text(json.dumps(USERS)), IMAGE)
    reply = looked(data, search=SearchParams(pattern="u1[0-9]@", max_results=3)).result
    assert [row["id"] for row in json.loads(texts_of(reply)[0])] == [10, 11, 12]
    assert texts_of(reply)[-1] == f"cache_id: {ID}; 3 of 10 matches; more with offset 3"
    assert facts_of(reply)["search"]["matches"] == 10


def test_images_and_links_come_with_a_fresh_result_and_not_again() -> None:
    data = result(IMAGE, text("a\nb"), LINK)
    for told in (
        {"reading": ReadParams()},
        {"search": SearchParams(pattern="a")},
        {"exploration": ExploreParams()},
    ):
        kinds = [json.loads(block)["type"] for block in blocks_of(looked(data, fresh=True, **told).result)]
        assert kinds == ["text", "image", "resource_link", "text"]
        kinds = [json.loads(block)["type"] for block in blocks_of(looked(data, **told).result)]
        assert kinds == ["text", "text"]


def test_of_a_result_without_a_text_is_said_what_it_has() -> None:
    told = note(result(IMAGE, IMAGE, LINK), reading=ReadParams())
    assert told.endswith("the result has no text, but 2 of type image, 1 of type resource_link")
    assert note(result(), exploration=ExploreParams()).endswith(
        "the result has no text, but no content at all"
    )


def test_what_stands_in_structure_is_explored_read_and_searched_where_there_is_no_text() -> None:
    data = result(IMAGE, structuredContent={"users": USERS})
    assert json.loads(shown(data, reading=ReadParams(path="users[1]"))) == USERS[1]
    assert "users" in shown(data, exploration=ExploreParams())
    assert json.loads(shown(data, search=SearchParams(pattern="u299@")))


def test_a_failure_is_still_one_when_it_is_read() -> None:
    told = json.loads(looked(result(text("a\nb"), isError=True), reading=ReadParams()).result)
    assert told["isError"] is True


def test_a_table_is_named_once_where_that_was_asked_for_and_saves_something() -> None:
    data = result(text(json.dumps(USERS[:20])))
    compact = shown(data, reading=ReadParams(), compact=True)
    assert compact.startswith('{"columns":["id","email","age"],"rows":')
    assert json.loads(from_compact_tables(compact.encode())) == USERS[:20]
    assert shown(result(text("[1,2]")), reading=ReadParams(), compact=True) == "[1,2]"
    filtered = shown(data, projection=ProjectionParams(fields=("id", "email")), compact=True)
    assert filtered.startswith('{"columns":["id","email"]')


def test_a_question_needs_an_engine() -> None:
    class Engine:
        name = "query"

        def process(self, content: Any, params: QueryParams) -> ProcessorResult:
            if params.sql == "no":
                raise ProcessingError("The statement is no SELECT.")
            return processed(
                content, b'{"rows":[[1]]}', {"more": True, "rows": 1, "shown": 1, "table_rows": 1}
            )

    made = parsed_result(result(text("a")))
    for sql in ("yes", "no"):
        job = ReadJob(tool="proxy_query", cache_id=ID, room=100, query=QueryParams(sql=sql))
        reply = read_result(made, job, Engine())
        if sql == "no":
            assert reply == JobResult(error="The statement is no SELECT.")
        else:
            assert texts_of(reply.result)[0] == '{"rows":[[1]]}'
            assert "add LIMIT and OFFSET" in texts_of(reply.result)[1]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "\0\0\0",
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        "[" * 20_000,
        '{"a":1e400,"a":' + "2" * 400 + "}",
        '{"name":"\\ud800"}',
        "a" * 200_000,
        "[1,",
    ],
)
@pytest.mark.parametrize("told", _BY_ALL)
def test_whatever_the_text_is_there_is_a_reply_or_a_reason(words: str, told: dict[str, Any]) -> None:
    reply = looked(result(text(words)), **told)
    if reply.error is None:
        assert sum(map(len, texts_of(reply.result)[:-1])) <= 8000
    else:
        assert "failed" not in reply.error


def test_a_text_that_is_wrapped_in_structure_is_filtered_without_an_empty_object_beside_it() -> None:
    words = json.dumps(USERS[:3])
    data = result(text(words), structuredContent={"result": words})
    reply = looked(data, room=8000, projection=EMAILS)
    assert "structuredContent" not in json.loads(reply.result)
    assert json.loads(texts_of(reply.result)[0]) == [{"email": user["email"]} for user in USERS[:3]]


INDENTED = result(text(json.dumps({"total": 2, "users": USERS[:2]}, indent=2)))


def test_what_an_excerpt_shows_of_indented_json_is_what_a_search_finds() -> None:
    reply = looked(INDENTED, search=SearchParams(pattern='"id":1,"email"'))
    assert json.loads(texts_of(reply.result)[0]) == {"users": [USERS[1]]}


def test_indented_json_is_read_as_it_was_written_by_whoever_counts_signs() -> None:
    written = json.dumps({"total": 2, "users": USERS[:2]}, indent=2)
    assert shown(INDENTED, reading=ReadParams(unit=PageUnit.CHARACTERS)) == written
    assert shown(INDENTED, reading=ReadParams(unit=PageUnit.LINES)) == written


def test_a_part_can_be_searched_and_filtered_by_its_path() -> None:
    data = result(text(json.dumps({"old": USERS[:5], "new": USERS[5:9]})))
    reply = looked(data, path="new", search=SearchParams(pattern="x.org"))
    assert json.loads(texts_of(reply.result)[0]) == USERS[5:9]
    reply = looked(data, path="new", projection=EMAILS)
    assert json.loads(texts_of(reply.result)[0]) == [{"email": user["email"]} for user in USERS[5:9]]
    assert "nowhere" in (looked(data, path="nowhere", projection=EMAILS).error or "")


def test_texts_that_are_cut_beside_the_one_that_is_paged_are_told() -> None:
    data = result(text("line\n" * 400), text(json.dumps(USERS)))
    assert "other texts of the result are cut" in note(data, room=500, projection=EMAILS)


def test_nothing_found_comes_with_what_to_try() -> None:
    assert "case_insensitive" in note(result(text("Error")), search=SearchParams(pattern="error"))


def test_an_offset_behind_the_end_is_told_with_the_last_one() -> None:
    told = note(result(text(json.dumps(USERS))), reading=ReadParams(offset=1000))
    assert "the last has offset 299" in told
