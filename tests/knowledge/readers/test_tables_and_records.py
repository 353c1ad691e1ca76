"""CSV, TSV, JSON and JSON lines become lines that can be read and searched."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.knowledge.ingestion.document_source import DocumentUnreadable
from headgate.knowledge.readers.records import parse_json, parse_json_lines, parse_table
from tests.knowledge.readers.sample_files import text_of


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_each_row_names_its_columns(delimiter: str) -> None:
    rows = [["part", "price"], ["Bolt", "1.50"], ['"Nut, small; new"', "2"]]
    parsed = parse_table("\r\n".join(delimiter.join(row) for row in rows).encode())
    assert [section.path for section in parsed.sections] == [("part, price",)]
    assert text_of(parsed) == "part: Bolt\nprice: 1.50\n\npart: Nut, small; new\nprice: 2\n\n"


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=; "])
def test_the_line_that_tells_excel_the_delimiter_is_no_header(line: str) -> None:
    content = f"{line}\r\npart;price, net\r\nBolt;1,50\r\n".encode("utf-8-sig")
    [section] = parse_table(content).sections
    assert (section.path, section.text) == (("part, price, net",), "part: Bolt\nprice, net: 1,50\n\n")


def test_the_delimiter_that_a_file_tells_is_taken_even_where_another_fits() -> None:
    assert text_of(parse_table(b"sep=^\na,b^c,d\n1,2^3,4\n")) == "a,b: 1,2\nc,d: 3,4\n\n"


def test_a_column_without_a_name_has_a_number() -> None:
    [section] = parse_table(b",vendor,price,\n0,Acme,1.20\n1,Globex,3\n").sections
    assert section.path == ("vendor, price",)
    assert section.text.split("\n\n")[0] == "column 1: 0\nvendor: Acme\nprice: 1.20"


def test_a_table_without_names_numbers_its_columns() -> None:
    first, second, end = text_of(parse_table(b"1,a\n2,b,c\n")).split("\n\n")
    assert first == "column 1: 1\ncolumn 2: a"
    assert (second, end) == ("column 1: 2\ncolumn 2: b\ncolumn 3: c", "")


def test_a_table_in_utf_16_and_one_with_only_names_are_read() -> None:
    assert text_of(parse_table("Größe,Preis\nXL,3\n".encode("utf-16"))) == "Größe: XL\nPreis: 3\n\n"
    assert text_of(parse_table(b"a,b\n")) == "a, b\n\n"


def test_a_quotation_mark_that_is_missing_is_told_with_its_line() -> None:
    with pytest.raises(DocumentUnreadable, match="a quotation mark may be missing"):
        parse_table(b'a,b\n"1,2\n' + b"x" * 3 * 1024 * 1024)


def test_objects_become_paths_and_values_as_they_were_written() -> None:
    parsed = parse_json(b'{"v": 1.50, "a": {"b": [1, 2], "c": [{"d": true}, null]}, "e": "two\\nlines"}')
    assert text_of(parsed) == "v: 1.50\na.b: 1, 2\na.c[0].d: true\na.c[1]: null\ne: two\nlines\n\n"


def test_arrays_of_objects_are_records_one_after_the_other() -> None:
    assert text_of(parse_json(b'[{"a": 1}, {"a": 2}]')) == "a: 1\n\na: 2\n\n"
    parsed = parse_json(b'{"page": 1, "vendors": [{"name": "Acme"}, {"name": "Bolt"}]}')
    assert [section.path for section in parsed.sections] == [(), ("vendors",)]
    assert parsed.sections[1].text == "# vendors\n\nname: Acme\n\nname: Bolt\n\n"


def test_lines_of_json_are_records_whatever_the_file_is_called() -> None:
    lines = b'{"a": 1}\n\n{"a": 2}\n'
    assert text_of(parse_json_lines(lines)) == text_of(parse_json(lines)) == "a: 1\n\na: 2\n\n"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085"])
def test_a_mark_that_ends_a_line_only_for_readers_does_not_tear_a_record(mark: str) -> None:
    lines = f'{{"a": "one{mark}two"}}\r\n{{"a": "three"}}\n'.encode()
    assert text_of(parse_json_lines(lines)) == "a: one\ntwo\n\na: three\n\n"
    assert text_of(parse_json(lines)) == "a: one\ntwo\n\na: three\n\n"


def test_a_line_that_is_no_json_is_kept_as_it_is() -> None:
    assert text_of(parse_json_lines(b'{"a": 1}\nplain words\n')) == "a: 1\n\nplain words\n\n"


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 200 + b"1" + b"}" * 200])
def test_what_is_nested_too_deeply_is_refused(content: bytes) -> None:
    with pytest.raises(DocumentUnreadable, match="nested too deeply"):
        parse_json(content)


def test_broken_json_names_its_line() -> None:
    with pytest.raises(DocumentUnreadable, match="is no JSON: line 2 is wrong"):
        parse_json(b'{"a": 1,\n"b" 2}')


def test_records_are_paragraphs_whatever_their_values_hold() -> None:
    row = parse_table(b'no,text\n1,"one\r\n\r\n  two"\n')
    assert text_of(row) == "no: 1\ntext: one\n  two\n\n"
    record = parse_json(b'{"about": "x", "list": [{"text": "one\\n\\ntwo"}]}')
    assert text_of(record) == "about: x\n\n# list\n\ntext: one\ntwo\n\n"
    assert all(section.records for section in (*row.sections, *record.sections))


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_no_bytes_make_a_reader_stumble(content: bytes) -> None:
    for read in (parse_table, parse_json, parse_json_lines):
        with suppress(DocumentUnreadable):
            assert read(content).doc_type in ("csv", "json")
