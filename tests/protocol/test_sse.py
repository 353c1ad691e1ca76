"""Server-sent events are read the same however the bytes are cut and whichever line ends are used."""

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.protocol.framing import SseParser, line_fragments, sse_event
from tests.protocol.json_spelling import cut, cuts

Line = tuple[bytes, bytes] | None


class Script(NamedTuple):
    data: bytes
    # Name and value of each line; None for an empty one.
    lines: list[Line]


lines = st.one_of(
    st.none(),
    st.tuples(
        st.sampled_from([b"data", b"event", b"id", b"retry", b"", b"x" * 500]),
        st.binary(max_size=20).map(lambda value: value.replace(b"\r", b"-").replace(b"\n", b"-")),
    ),
)
styles = st.sampled_from([b"\n", b"\r\n", b"\r"])
spaces = st.sampled_from([b"", b" "])


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    data = b""
    for line in (wanted := draw(st.lists(lines, max_size=8))):
        if line is not None:
            name, value = line
            # Without the space that is cut off, a value must not begin with one.
            data += name + b":" + (b" " if value.startswith(b" ") else draw(spaces)) + value
        end = draw(styles)
        # A CR before an LF is one end, so an empty line after a CR must not end in LF alone.
        data += b"\r\n" if line is None and data.endswith(b"\r") and end == b"\n" else end
    return Script(data, wanted)


def read(chunks: list[bytes]) -> list[Line]:
    reader, found = SseParser(), list[Line]()
    name, value = b"", b""
    for chunk in chunks:
        for part in reader.feed(chunk):
            if part is None:
                found.append(None)
                continue
            name, value = part.name, value + part.data
            if part.ends:
                found.append((name, value))
                value = b""
    return found


@given(scripts(), cuts)
@example(Script(b"data: a\r\ndata: b\r\n\r\n", [(b"data", b"a"), (b"data", b"b"), None]), [8, 8])
def test_every_cut_and_every_line_end_reads_the_same(script: Script, places: list[int]) -> None:
    assert read([script.data]) == script.lines
    assert read(cut(script.data, places)) == script.lines
    assert read([script.data[at : at + 1] for at in range(len(script.data))]) == script.lines


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_field_without_a_colon_is_empty(end: bytes) -> None:
    assert read([b"data" + end + end]) == [(b"data", b""), None]


def test_a_large_line_comes_in_pieces_and_is_not_gathered() -> None:
    reader = SseParser()
    found = [part for _ in range(100) for part in reader.feed(b"data: " + b"x" * 1000)]
    assert len(found) == 100


def test_a_line_without_a_colon_is_not_gathered_without_end() -> None:
    reader = SseParser()
    found = [part for _ in range(100) for part in reader.feed(b"x" * 1000)]
    assert len(found) > 90


@given(st.binary(max_size=100), cuts)
def test_lines_of_stdio_are_cut_at_line_feeds_alone(data: bytes, places: list[int]) -> None:
    found, line = list[bytes](), b""
    for chunk in cut(data, places):
        for piece in line_fragments(chunk):
            line += piece.data
            if piece.ends:
                found.append(line)
                line = b""
    assert [*found, line] == data.split(b"\n")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")))
def test_what_is_written_as_an_event_is_read_as_one(text: str) -> None:
    assert read([sse_event(text.encode())]) == [(b"event", b"message"), (b"data", text.encode()), None]
