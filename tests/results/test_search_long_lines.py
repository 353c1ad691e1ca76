"""A search in long lines, long strings and coloured text counts every match and shows each once, cut."""

import json
import re
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.results.content import character_count
from headgate.results.jobs import ContextType, PageUnit, ReadJob, ReadParams, SearchMode, SearchParams
from headgate.results.pipeline import ProcessorResult
from headgate.results.read_result import read_result
from headgate.results.search.match_page import position_after, position_before
from headgate.results.search.search_processor import SearchProcessor
from tests.results.sample_results import IMAGE, facts_of, parsed_result, result, text, texts_of

ROOM = 8000
MARK = re.compile(r"<hit\d+>")
HTML = "<html><body>" + "".join(
    f'<div class="row"><a href="/u/{number}">User {number}</a><p>{"lorem ipsum " * 30}</p></div>'
    for number in range(40)
)
ROWS = [{"id": number, "name": f"User {number}", "note": "lorem ipsum " * 30} for number in range(40)]
ONE_LINE = {
    "html": HTML,
    "repr": repr(ROWS),
    "prefixed": f"Here are the users: {json.dumps(ROWS)}",
    "fenced": f"```json\n{json.dumps(ROWS)}\n```",
}
RED, PLAIN = "\x1b[1;31m", "\x1b[0m"


def search(content: str | bytes, pattern: str, **params: Any) -> ProcessorResult:
    data = content.encode() if isinstance(content, str) else content
    found = SearchProcessor().process(data, SearchParams(pattern=pattern, **params))
    assert character_count(found.content[:]) <= params.get("room", ROOM)
    return found


def found(content: str | bytes, pattern: str, **params: Any) -> str:
    return search(content, pattern, **params).content[:].decode()


def pages(content: str, pattern: str, **params: Any) -> tuple[list[str], set[int]]:
    """Every page, and how many matches they say that there are."""
    shown, output = list[str](), set[int]()
    offset: int | None = 0
    while offset is not None:
        made = search(content, pattern, offset=offset, **params)
        shown.append(made.content[:].decode())
        output.add(made.metadata["matches"])
        following = made.metadata.get("next_offset")
        assert following is None or following > offset
        offset = following
    return shown, output


def reply(data: bytes, path: str = "", **params: Any) -> tuple[str, str, dict[str, Any]]:
    """What an agent is shown, the note below it, and what is said for programs."""
    job = ReadJob(tool="proxy_search", cache_id="0", room=ROOM, path=path, search=SearchParams(**params))
    done = read_result(parsed_result(data), job)
    assert done.error is None
    shown, *_, note = texts_of(done.result)
    return shown, note, facts_of(done.result)["search"]


def read(data: bytes, offset: int, path: str = "", limit: int = 7) -> str:
    reading = ReadParams(path=path, offset=offset, limit=limit, unit=PageUnit.CHARACTERS)
    job = ReadJob(tool="proxy_read", cache_id="0", room=ROOM, reading=reading)
    return texts_of(read_result(parsed_result(data), job).result)[0]


# Long lines.


@pytest.mark.parametrize("kind", ONE_LINE)
def test_of_a_text_without_line_breaks_every_match_is_counted_and_shown_with_a_little_around_it(
    kind: str,
) -> None:
    shown, output = pages(ONE_LINE[kind], r"User \d+")
    assert output == {40}
    visible = Counter(name for page in shown for name in re.findall(r"User \d+", page))
    assert visible == {f"User {number}": 1 for number in range(40)}
    rows = [row for page in shown for row in page.split("\n")]
    assert max(map(len, rows)) < 300
    assert all(row.startswith("…") for row in rows[1:])
    assert rows[1].endswith("…")


def test_a_page_of_cut_hits_says_how_many_it_shows_and_where_to_go_on() -> None:
    metadata = search(HTML, r"User \d+").metadata
    assert metadata == {
        "mode": "regex",
        "matches": 40,
        "shown": 32,
        "next_offset": 32,
        "lines": [1],
        "cut": 32,
    }


def test_hits_near_each_other_share_what_is_around_them() -> None:
    line = "x" * 3000 + "<hit1> and <hit2>" + "y" * 3000 + "<hit3>"
    first, second = found(line, r"<hit\d>").split("\n")
    assert first == f"…{'x' * 120}<hit1> and <hit2>{'y' * 120}…"
    assert second == f"…{'y' * 120}<hit3>"


def test_a_page_ends_before_the_next_match_so_that_none_is_on_two() -> None:
    line = "x" * 3000 + "<hit1> and <hit2>" + "y" * 3000
    assert found(line, r"<hit\d>", max_results=1) == f"…{'x' * 120}<hit1> and …"
    assert found(line, r"<hit\d>", offset=1) == f"… and <hit2>{'y' * 120}…"


def test_a_line_of_context_is_more_of_a_long_line() -> None:
    line = "x" * 3000 + "<hit>" + "y" * 3000
    assert found(line, "<hit>", before=2, after=1) == f"…{'x' * 320}<hit>{'y' * 220}…"


def test_lines_beside_a_long_one_are_shown_and_cut_too() -> None:
    content = "\n".join(["before", "x" * 3000 + "<hit>" + "y" * 3000, "z" * 3000, "<hit> short", "last"])
    assert found(content, "<hit>", before=1, after=1).split("\n") == [
        "before",
        f"…{'x' * 220}<hit>{'y' * 220}…",
        f"{'z' * 240}…",
        "<hit> short",
        "last",
    ]


def test_short_lines_stay_whole_beside_long_ones_and_count_once() -> None:
    content = "<hit> twice <hit>\n" + "x" * 3000 + "<hit>" + "y" * 3000 + "<hit>\nnothing\n<hit>"
    made = search(content, "<hit>")
    assert made.metadata["matches"] == made.metadata["shown"] == 4
    assert (made.metadata["cut"], made.metadata["lines"]) == (2, [1, 2, 4])
    rows = made.content[:].decode().split("\n")
    assert (rows[0], rows[-1], len(rows)) == ("<hit> twice <hit>", "<hit>", 4)


def test_a_match_longer_than_the_room_is_cut_itself() -> None:
    line = "x" * 3000 + "[" + "m" * 20_000 + "]" + "y" * 3000 + "[end]"
    for params in ({}, {"multiline": True}):
        made = search(line, r"\[[^\]]*\]", **params)
        first, second = made.content[:].decode().split("\n")
        assert (first[0], first[-2:], second[-5:]) == ("…", "m…", "[end]")
        assert (made.metadata["matches"], made.metadata["cut"]) == (2, 2)


def test_a_match_over_long_lines_shows_where_it_begins_and_ends() -> None:
    content = "x" * 3000 + "Start\nmiddle\nEnd" + "y" * 3000
    assert found(content, "Start.*End", multiline=True).split("\n") == [
        f"…{'x' * 120}Start",
        "middle",
        f"End{'y' * 120}…",
    ]


def test_matches_of_one_long_line_are_all_shown_with_multiline_too() -> None:
    shown, output = pages(HTML, r"User \d+", multiline=True)
    assert output == {40}
    assert sum(len(re.findall(r"User \d+", page)) for page in shown) == 40


def test_a_match_over_more_lines_than_fit_says_that_it_is_cut() -> None:
    content = "Start\n" + "line\n" * 500 + "End"
    made = search(content, "Start.*End", multiline=True, room=100)
    shown = made.content[:].decode()
    assert shown.startswith("Start\nline\n")
    assert shown.endswith("line\n…")
    assert made.metadata["cut"] == 1


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    "sign", ["é", "漢", "😀", "e\u0301", FAMILY, "👍\U0001f3fd", "🇩🇪", "\u0ba8\u0bbf", "☎\ufe0f"]
)
@pytest.mark.parametrize("count", range(1, 9))
def test_no_character_is_parted_from_what_belongs_to_it(sign: str, count: int) -> None:
    data = (sign * 50).encode()
    start, end = position_before(data, len(data), 0, count), position_after(data, 0, len(data), count)
    for shown in (data[start:].decode(), data[:end].decode()):
        assert len(shown) <= count
        assert shown == sign * (len(shown) // len(sign))


@pytest.mark.parametrize("sign", ["é", "漢", "😀", "e\u0301", FAMILY])
def test_the_room_is_counted_in_characters_and_hits_are_text(sign: str) -> None:
    line = (sign * 2000 + "<hit>") * 3
    for mode in (SearchMode.REGEX, SearchMode.CONTEXT):
        shown = found(line, "<hit>", mode=mode, room=500)
        assert "\ufffd" not in shown
        assert "<hit>" in shown


def test_a_hundred_thousand_matches_in_one_line_take_linear_time_and_one_page() -> None:
    # Twice as much may take four times as long on a busy machine; a square would take a hundred times.
    times = []
    for count in (20_000, 200_000):
        line = b"<li>item <b>hit</b> word word</li>" * count
        began = time.process_time()
        made = search(line, "hit")
        times.append(time.process_time() - began)
        assert made.metadata["matches"] == min(count, 100_000)
        assert made.metadata.get("at_least", False) is (count > 100_000)
    assert times[1] < 40 * times[0]


@pytest.mark.parametrize("pattern", ["a(?:.*b)?", "a.*c|a"])
def test_a_pattern_that_reads_on_at_every_match_of_a_line_ends_all_the_same(pattern: str) -> None:
    began = time.process_time()
    made = search(b"a" * 200_000, pattern)
    assert made.metadata["matches"] == 100_000
    # Reading on to the end each time would take minutes.
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "pattern", [r"<p>.*?</p>", r"<p>(.*?)</p>", r"(?:<p>|<b>)[^<]*<", r"(\w+)@(\w+)", "<p>.*</p>", r'"[^"]+"']
)
def test_matches_of_a_long_line_are_those_of_the_standard_library(pattern: str) -> None:
    line = "".join(f'<p class="x">{n}</p><p>{"word " * 300}a@b</p><b>{n}</b>' for n in range(300))
    assert search(line, pattern).metadata["matches"] == len(re.findall(pattern, line))


def test_an_offset_behind_the_last_match_says_so() -> None:
    _, note, _ = reply(result(text(HTML)), pattern=r"User \d+", offset=40)
    assert "0 of 40 matches; the last has offset 39" in note


_WORDS = st.sampled_from(
    ["HIT", "HIT", "word ", "é", "😀", "\n", "\n\n", "-" * 150, "=" * 2500, "e\u0301" * 40]
)


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(_WORDS, max_size=60),
    room=st.integers(60, 3000),
    around=st.sampled_from([0, 0, 1, 3]),
    most=st.sampled_from([None, None, 1, 3]),
    multiline=st.booleans(),
)
def test_the_pages_of_any_text_show_every_match_exactly_once(
    words: list[str],
    room: int,
    around: int,
    most: int | None,
    multiline: bool,  # noqa: FBT001
) -> None:
    content = "".join(f"<hit{number}>" if word == "HIT" else word for number, word in enumerate(words))
    lines = content.split("\n")
    shown, output = pages(
        content, r"<hit\d+>", room=room, before=around, after=around, max_results=most, multiline=multiline
    )
    expected = Counter(MARK.findall(content))
    visible = Counter(mark for page in shown for mark in MARK.findall(page))
    counted = [len(MARK.findall(line)) for line in lines]
    if multiline:
        total = sum(counted)
        # Pages that end inside of a short line show it again.
        visible = Counter(dict.fromkeys(visible, 1))
    else:
        limit = min(2000, room)
        total = sum(
            count if len(line) > limit else min(count, 1) for line, count in zip(lines, counted, strict=True)
        )
    if not around:
        assert visible == expected
    assert set(visible) == set(expected)
    assert output == {total}


# Long strings in JSON.


def document(count: int) -> list[Any]:
    body = "".join("word " * 300 + f"<hit{number}>" for number in range(count))
    return [{"id": 1, "body": body}, {"id": 2, "body": f"<hit{count}>"}]


def test_every_match_in_a_string_that_fits_no_page_is_shown_once_and_the_pages_are_json() -> None:
    shown, output = pages(json.dumps(document(40)), r"<hit\d+>")
    assert output == {41}
    visible = Counter(mark for page in shown for mark in MARK.findall(json.dumps(json.loads(page))))
    assert visible == {f"<hit{number}>": 1 for number in range(41)}
    body = json.loads(shown[0])[0]["body"]
    assert (body[0], body[-1], body.count("…")) == ("…", "…", body.count("<hit") + 1)


def test_where_a_cut_match_in_a_string_is_can_be_read() -> None:
    data = result(text(json.dumps({"items": document(40)})))
    _, note, facts = reply(data, pattern="<hit7>")
    assert (facts["cut"], facts["path"]) == (1, "items[0].body")
    assert (
        f"path items[0].body, unit characters and an offset a little before {facts['positions'][0]}" in note
    )
    assert read(data, facts["positions"][0], facts["path"], 6) == "<hit7>"


def test_a_string_that_a_path_leads_to_is_searched_as_text() -> None:
    words = "first\tline\n" + "word \u2014 " * 2000 + '<hit> "quoted"\n' + "last"
    data = result(text(json.dumps({"a": {"body": words}})))
    shown, _, facts = reply(data, "a.body", pattern='<hit> "quoted"')
    assert '<hit> "quoted"' in shown
    assert read(data, facts["positions"][0], facts["path"], 5) == "<hit>"
    shown, _, _ = reply(data, "a.body", pattern="^first\tline$|^last$")
    assert shown == "first\tline\nlast"


def test_below_a_path_the_place_of_a_cut_match_is_told_from_the_top() -> None:
    data = result(text(json.dumps({"a": document(40), "b": [{"c": document(40)}]})))
    assert reply(data, "a", pattern="<hit7>")[2]["path"] == "a[0].body"
    assert reply(data, "b[0].c[0]", pattern="<hit7>")[2]["path"] == "b[0].c[0].body"
    # A path that leads to several places is no place to read at.
    assert not reply(data, "b.c", pattern="<hit7>")[2]["path"]


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.sampled_from(["HIT", "word ", '"\\\n', "é", "😀", "\0" * 30, "-" * 150]), max_size=60),
    room=st.integers(120, 900),
)
def test_the_pages_of_any_string_show_every_match_exactly_once(words: list[str], room: int) -> None:
    string = "".join(f"<hit{number}>" if word == "HIT" else word for number, word in enumerate(words))
    shown, output = pages(json.dumps([string, 1]), r"<hit\d+>", room=room)
    visible = Counter(mark for page in shown for mark in MARK.findall("".join(json.loads(page))))
    assert visible == Counter(MARK.findall(string))
    whole = len(json.dumps(string)) <= room - 3
    assert output == {min(len(visible), 1) if whole else len(visible)}


# Where hits are.


def test_hits_say_in_which_block_they_are_and_where_they_can_be_read() -> None:
    data = result(text("Füße: see <hit> below"), IMAGE, text(HTML), text(f"```\n{ONE_LINE['repr']}\n```"))
    shown, note, facts = reply(data, pattern="<hit>|User 3\\b")
    assert facts["blocks"] == [0, 2, 3]
    assert "in content block 0 (1), 2 (1), 3 (1)" in note
    assert shown.startswith("Füße: see <hit> below\n…")
    assert [read(data, position, limit=6) for position in facts["positions"][1:]] == ["User 3", "User 3"]


@pytest.mark.parametrize("mode", [SearchMode.BM25, SearchMode.FUZZY, SearchMode.CONTEXT])
def test_other_modes_say_the_block_too(mode: SearchMode) -> None:
    data = result(text("nothing"), text("the needle is here"), text("or here: needle"))
    assert sorted(reply(data, pattern="needle", mode=mode)[2]["blocks"]) == [1, 2]
    json_blocks = result(*(text(json.dumps({"a": word})) for word in ("hay", "needle", "needle")))
    assert sorted(reply(json_blocks, pattern="needle", mode=mode)[2]["blocks"]) == [1, 2]


def test_a_block_of_json_among_others_has_no_positions_that_would_be_wrong() -> None:
    data = result(text("long text\n" * 2_000), text(json.dumps(ROWS, indent=2)))
    _, note, facts = reply(data, pattern="User 3\\b")
    assert facts["blocks"] == [1]
    assert "positions" not in facts
    assert "1 cut at …: proxy_read shows the rest" in note


def test_a_hit_in_the_only_json_among_texts_says_its_block() -> None:
    data = result(text("intro"), text(json.dumps(ROWS, indent=2)))
    shown, _, facts = reply(data, pattern="User 3\\b")
    assert json.loads(shown) == [ROWS[3]]
    assert facts["blocks"] == [1]
    assert "positions" not in facts


@pytest.mark.parametrize("mode", [SearchMode.REGEX, SearchMode.BM25, SearchMode.FUZZY])
def test_hits_in_opened_strings_say_their_block(mode: SearchMode) -> None:
    words = ("hay", "hay", "needle", "hay", "needle")
    blocks = [text(json.dumps({"a": json.dumps({"b": [word] * 9})}) + "\n") for word in words]
    facts = reply(result(*blocks), pattern="needle", mode=mode)[2]
    assert set(facts["blocks"]) == {2, 4}
    mixed = reply(result(text("intro"), *blocks), pattern="needle", mode=mode)[2]
    assert set(mixed["blocks"]) == {3, 5}


@pytest.mark.parametrize("before", [[], ["intro"], ["intro", "more"]])
def test_a_cut_string_inside_of_other_json_is_read_by_the_path_of_the_note(before: list[str]) -> None:
    long = "word " * 9_000 + "<hit>" + " word" * 9_000
    inner = json.dumps({"log": long})
    container = (
        json.dumps([{"body": inner}]) if before else f"Here it is:\n```json\n{json.dumps([inner])}\n```"
    )
    data = result(*map(text, before), text(container))
    _, _, facts = reply(data, pattern="<hit>")
    assert read(data, facts["positions"][0], facts["path"], limit=5) == "<hit>"
    path = f"[{len(before)}][0]" if before else "[0]"
    below = reply(data, path=path, pattern="<hit>")[2]
    assert read(data, below["positions"][0], below["path"], limit=5) == "<hit>"


def test_one_text_has_no_blocks_and_what_is_whole_is_not_called_cut() -> None:
    _, note, facts = reply(result(text("a\nhit\nb" * 3)), pattern="hit")
    assert "blocks" not in facts
    assert "cut" not in facts
    assert note == "cache_id: 0; 3 of 3 matches"


# Context.

LEVELS = ["ERROR" if number % 50 == 7 else "INFO" for number in range(600)]
LINED = {
    "log": "\n".join(f"2026-01-01T00:00:00Z {level} request {n} done" for n, level in enumerate(LEVELS)),
    "ndjson": "\n".join(json.dumps({"id": n, "level": level}) for n, level in enumerate(LEVELS)),
    "csv": "id,level,text\n" + "\n".join(f"{n},{level},some text" for n, level in enumerate(LEVELS)),
    "xml": "<log>\n" + "\n".join(f'  <e id="{n}">{level}</e>' for n, level in enumerate(LEVELS)) + "\n</log>",
    "yaml": "log:\n" + "\n".join(f"  - id: {n}\n    level: {level}" for n, level in enumerate(LEVELS)),
}


@pytest.mark.parametrize("kind", LINED)
@pytest.mark.parametrize("context", [ContextType.PARAGRAPH, ContextType.SECTION, ContextType.SENTENCE])
def test_what_has_no_paragraphs_shows_some_lines_around_each_hit(kind: str, context: ContextType) -> None:
    made = search(LINED[kind], "ERROR", mode=SearchMode.CONTEXT, context_type=context)
    passages = made.content[:].decode().split("\n--\n")
    assert len(passages) == made.metadata["shown"] == 5
    assert max(map(len, passages)) < 400
    assert made.metadata["matches"] == 12
    shown, output = pages(LINED[kind], "ERROR", mode=SearchMode.CONTEXT, context_type=context)
    assert sum(page.count("ERROR") for page in shown) == 12
    assert output == {12}


@pytest.mark.parametrize("kind", ONE_LINE)
def test_context_of_a_text_without_line_breaks_is_near_the_hit(kind: str) -> None:
    made = search(ONE_LINE[kind], r"User 3\b", mode=SearchMode.CONTEXT)
    shown = made.content[:].decode()
    assert len(shown) <= 1000
    assert (shown[0], shown[-1]) == ("…", "…")
    assert (made.metadata["matches"], made.metadata["cut"]) == (1, 1)


def test_in_context_every_match_is_counted_though_one_passage_shows_several() -> None:
    content = "a hit and a hit\nand a hit\n\nnothing\n\none hit more"
    made = search(content, "hit", mode=SearchMode.CONTEXT, max_results=2)
    assert made.content == b"a hit and a hit\nand a hit"
    assert (made.metadata["matches"], made.metadata["shown"], made.metadata["next_offset"]) == (4, 3, 3)
    assert found(content, "hit", mode=SearchMode.CONTEXT, offset=3) == "one hit more"


def test_context_lines_that_were_asked_for_are_all_shown() -> None:
    made = search(LINED["log"], "request 307 ", mode=SearchMode.CONTEXT, before=30, after=30)
    assert made.content[:].count(b"\n") == 60


# Ranked search.


@pytest.mark.parametrize("mode", [SearchMode.FUZZY, SearchMode.BM25])
@pytest.mark.parametrize("kind", ONE_LINE)
def test_ranked_hits_in_a_text_without_line_breaks_are_parts_of_it(mode: SearchMode, kind: str) -> None:
    content = ONE_LINE[kind].replace("User 17", "needle")
    made = search(content, "needle", mode=mode)
    shown = made.content[:].decode()
    assert "needle" in shown
    assert len(shown) < 450
    assert (shown[0], shown[-1]) == ("…", "…")
    assert made.metadata["matches"] == made.metadata["cut"] == 1


def test_a_large_element_leaves_room_for_the_other_hits_of_a_ranked_page() -> None:
    rows = [{"t": "needle " + "hay " * 5000}, {"t": "a needle"}, {"t": "hay"}]
    for mode in (SearchMode.BM25, SearchMode.FUZZY):
        made = search(json.dumps(rows), "needle", mode=mode)
        assert len(json.loads(made.content[:])) == made.metadata["shown"] == made.metadata["matches"] == 2
        assert made.metadata["cut"] == 1


# JSON as it may be written.


@pytest.mark.parametrize(
    "pattern",
    [
        '"id":999',
        '"id": 999',
        '"id" : 999',
        '"id":999,"name"',
        '"id": 999, "name": "User 999"',
        r'"id":\s*999\b',
        r"\"id\":999",
        '{"id":999,"name"',
        '"(?:id|key)":999',
        '"id":[0-9]{3},"name":"User 999"',
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("kind", ["text", "structure", "lines", "fenced", "both"])
def test_a_pattern_finds_json_with_and_without_spaces_in_any_kind_of_result(
    pattern: str, indent: int | None, kind: str
) -> None:
    rows = [{"id": number, "name": f"User {number}"} for number in range(1500)]
    written = json.dumps(rows, indent=indent)
    data = {
        "text": lambda: result(text(written)),
        "structure": lambda: result(structuredContent={"rows": rows}),
        "lines": lambda: result(text("\n".join(map(json.dumps, rows)))),
        "fenced": lambda: result(text(f"Rows:\n```json\n{json.dumps(rows)}\n```")),
        "both": lambda: result(text(written), structuredContent={"rows": rows}),
    }[kind]()
    for mode in (SearchMode.REGEX, SearchMode.CONTEXT):
        shown, _, facts = reply(data, pattern=pattern, mode=mode)
        assert facts["matches"] == 1
        assert "User 999" in shown


@pytest.mark.parametrize("pattern", ['"id":+9', "a: b", '"a, "b', '["a"]:9', '"', ":", '"id":{2}9', "x, y"])
def test_other_patterns_mean_what_they_say(pattern: str) -> None:
    lines = [
        '"id":9',
        '"id": 9',
        '"id":::9',
        '"id"::9',
        "a: b",
        "a:b",
        '"a, "b',
        '"a,"b',
        "a:9",
        "x, y",
        "x,y",
    ]
    shown = found("\n".join(lines), pattern).split("\n")
    assert shown == [line for line in lines if re.search(pattern, line)]


# Colours.

COLOURED = f"first\n{RED}ERR{PLAIN}OR: \x1b]8;;http://a\x07disk{PLAIN}\x1b[K full\nlast\x1b(B"


@pytest.mark.parametrize(
    ("mode", "pattern"),
    [
        (SearchMode.REGEX, "^ERROR: disk full$"),
        (SearchMode.CONTEXT, "ERROR: disk full"),
        (SearchMode.FUZZY, "eror disc"),
        (SearchMode.BM25, "error disk"),
        (SearchMode.STRUCTURE, "ERROR"),
    ],
)
def test_colours_are_neither_searched_nor_shown(mode: SearchMode, pattern: str) -> None:
    content = "\n\n".join(["nothing here"] * 30 + [COLOURED] + ["nothing here"] * 30)
    shown = found(content, pattern, mode=mode)
    assert "ERROR: disk full" in shown
    assert "\x1b" not in shown


def test_whoever_looks_for_colours_finds_them() -> None:
    for pattern in (r"\x1b\[1;31m", r"\x{1b}\[1;31m", r"\033\[1;31m", "\x1b\\[1"):
        assert found(COLOURED, pattern).startswith(RED)


def test_a_place_in_coloured_text_can_be_read() -> None:
    content = "".join(f"{RED}wörd{PLAIN} " for _ in range(2000)) + "<h" + RED + "it>" + " tail" * 900
    data = result(text(content))
    shown, _, facts = reply(data, pattern="<hit>")
    assert "wörd wörd <hit> tail" in shown
    assert read(data, facts["positions"][0], limit=2) == "<h"


@pytest.mark.parametrize("lines", [False, True])
def test_colours_in_json_strings_are_neither_searched_nor_shown(lines: bool) -> None:  # noqa: FBT001
    rows = [{"id": n, "text": f"{RED}ERR{PLAIN}OR: disk {n}", "path": "c:\\u001b[31m"} for n in range(3)]
    content = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    shown = found(content, "ERROR: disk 1")
    (row,) = [json.loads(shown)] if lines else json.loads(shown)
    # A backslash and some letters are no colour.
    assert row == {"id": 1, "text": "ERROR: disk 1", "path": "c:\\u001b[31m"}


def test_a_program_that_writes_colours_is_shown_as_it_is() -> None:
    code = 'echo -e "\\u001b[31mred\\033[0m"'
    assert found(code, "echo") == code
