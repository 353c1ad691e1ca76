"""Headers that repeat arguments: which a schema may ask for, how they are written, and that none can lie."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from mcp.shared.inbound import (
    find_invalid_x_mcp_header,
    mcp_param_headers,
    validate_mcp_param_headers,
    x_mcp_header_map,
)

from headgate.protocol.mcp_headers import (
    forwarded_param_headers,
    header_mismatch,
    mirrored_parameters,
    param_header_lines,
)
from tests.protocol.json_spelling import JsonValue, Pen, pens, texts


class Repeated(NamedTuple):
    path: tuple[str, ...]
    header: str


REGION = Repeated(("region",), "Region")
LINE = re.compile(rb"Mcp-Param-[!#-'*+\-.0-9A-Z^-z|~]+: [\x20-\x7e]*\r\n")


def annotated(header: JsonValue, kind: JsonValue = "string") -> dict[str, JsonValue]:
    return {"type": kind, "x-mcp-header": header}


def of(*properties: Mapping[str, JsonValue], **keywords: JsonValue) -> dict[str, JsonValue]:
    named = {f"p{number}": schema for number, schema in enumerate(properties)}
    return {"type": "object", "properties": named, **keywords}


def read(lines: bytes) -> dict[bytes, bytes]:
    """Header lines as a server's parser hands them on."""
    pairs = (line.split(b": ", 1) for line in lines.split(b"\r\n")[:-1])
    return {name.lower(): value for name, value in pairs}


# ---- What a schema may ask for ----


def test_a_schema_says_which_arguments_are_repeated() -> None:
    schema = of(
        annotated("Region"),
        {"type": "object", "properties": {"tenant": annotated("Tenant-Id", "integer")}},
        {"type": "string"},
        annotated("Dry", "boolean"),
    )
    assert mirrored_parameters(json.dumps(schema)) == (
        (("p0",), "Region"),
        (("p3",), "Dry"),
        (("p1", "tenant"), "Tenant-Id"),
    )


@pytest.mark.parametrize("schema", ["{}", "true", '{"type":"object","properties":{"a":{"type":"string"}}}'])
def test_a_schema_without_annotations_repeats_nothing(schema: str) -> None:
    assert mirrored_parameters(schema) == ()


def test_an_annotation_spelled_with_escapes_is_one() -> None:
    assert mirrored_parameters(r'{"properties":{"a":{"type":"string","x\u002dmcp-\u0068eader":"A"}}}') == (
        (("a",), "A"),
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x-mcp-header": {"type": "string"}}},
        of({"type": "object", "default": annotated("A b")}),
        of({"const": annotated("A b")}),
        of({"enum": [annotated("A b")]}),
        of({"examples": [annotated("A b")]}),
        {"description": "x-mcp-header"},
    ],
)
def test_names_and_data_are_no_annotations(schema: JsonValue) -> None:
    assert mirrored_parameters(json.dumps(schema)) == ()


def test_a_header_may_be_called_like_one_of_the_protocol() -> None:
    assert mirrored_parameters(json.dumps(of(annotated("Method")))) == ((("p0",), "Method"),)


@pytest.mark.parametrize(
    "header",
    [
        *("", "My Region", "Region:Primary", "Région", "Region\t1", "A\r\nX-Evil: 1", "A\n", "\0", "a,b"),
        *("x" * 129, 7, None, True, ["A"], {"a": 1}),
    ],
)
def test_what_cannot_be_a_part_of_a_headers_name_is_refused(header: JsonValue) -> None:
    with pytest.raises(ValueError, match="is no header's name"):
        mirrored_parameters(json.dumps(of(annotated(header))))


@pytest.mark.parametrize("kind", ["object", "array", "null", "number", "str", None, ["string", "null"], {}])
def test_only_strings_integers_and_booleans_are_repeated(kind: JsonValue) -> None:
    with pytest.raises(ValueError, match="no string or integer or boolean"):
        mirrored_parameters(json.dumps(of(annotated("A", kind))))


def test_an_argument_without_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="no string or integer or boolean"):
        mirrored_parameters(json.dumps(of({"x-mcp-header": "A"})))


@pytest.mark.parametrize("second", ["Region", "REGION"])
def test_two_arguments_cannot_share_a_header(second: str) -> None:
    schema = of(annotated("Region"), of(annotated(second)))
    with pytest.raises(ValueError, match=r"'p0' and 'p1\.p0' want the same x-mcp-header"):
        mirrored_parameters(json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        annotated("A"),
        *(
            of(**{keyword: inner})
            for keyword in ("items", "contains", "additionalProperties", "not", "if", "then", "else")
            for inner in (annotated("A"), of(annotated("A")))
        ),
        *(of(**{keyword: [True, annotated("A")]}) for keyword in ("allOf", "anyOf", "oneOf", "prefixItems")),
        *(of(**{keyword: [annotated("A")]}) for keyword in ("items",)),
        *(
            of(**{keyword: {"some": annotated("A")}})
            for keyword in ("$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies")
        ),
        of({"type": "array", "items": of(annotated("A"))}),
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": annotated("A")}},
    ],
)
def test_an_annotation_stands_only_where_properties_lead(schema: JsonValue) -> None:
    with pytest.raises(ValueError, match="where more than plain properties lead"):
        mirrored_parameters(json.dumps(schema))


def test_a_schema_that_wants_too_many_headers_is_refused() -> None:
    mirrored_parameters(json.dumps(of(*(annotated(f"H{number}") for number in range(64)))))
    with pytest.raises(ValueError, match="more than 64"):
        mirrored_parameters(json.dumps(of(*(annotated(f"H{number}") for number in range(65)))))


@pytest.mark.parametrize(
    "schema",
    ['{"x-mcp-header"', '{"x-mcp-header":"\\ud800"}', '{"a":' * 10**5 + '"x-mcp-header"' + "}" * 10**5],
)
def test_a_schema_that_cannot_be_read_is_refused_in_one_sentence(schema: str) -> None:
    with pytest.raises(ValueError, match="cannot be read") as refusal:
        mirrored_parameters(schema)
    assert len(str(refusal.value)) < 200


def test_a_hundred_thousand_subschemas_are_searched() -> None:
    wide = {f"a{number}": {"type": "object", "properties": {"b": {}}} for number in range(10**5)}
    inner: JsonValue = {"type": "object", "properties": {**wide, "last": annotated("Last", "integer")}}
    around = [f"n{depth}" for depth in range(15)]
    assert mirrored_parameters(json.dumps(_inside(around, inner))) == (((*around, "last"), "Last"),)
    with pytest.raises(ValueError, match="more than 16 levels deep"):
        mirrored_parameters(json.dumps(_inside(["more", *around], inner)))


def _inside(path: Sequence[str], schema: JsonValue) -> JsonValue:
    for name in reversed(path):
        schema = {"properties": {name: schema}}
    return schema


def test_a_refusal_is_short_however_long_the_name_is() -> None:
    schema = {"properties": {"a\r\n" + "b" * 10**5: annotated("A b")}}
    with pytest.raises(ValueError, match="is no header's name") as refusal:
        mirrored_parameters(json.dumps(schema))
    assert len(str(refusal.value)) < 200
    assert str(refusal.value).isprintable()


names = st.sampled_from(["a", "b", "x-mcp-header", "properties", "items", "é"])
headers_asked_for = st.integers(0, 99).map("H{}".format) | st.sampled_from(["A", "a", "no name", "", 1])
types = st.sampled_from(["string", "integer", "boolean"] * 4 + ["number", "object", ["string"]])
annotations = st.builds(annotated, headers_asked_for, types)
leaves = st.one_of(annotations, st.fixed_dictionaries({"type": types}), st.booleans())


def _around(inner: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    properties = {"properties": st.dictionaries(names, inner, max_size=4)}
    harmless = {"default": inner, "items": st.fixed_dictionaries({"type": types})}
    elsewhere = {
        "items": inner,
        "anyOf": st.lists(inner, max_size=2),
        "$defs": st.dictionaries(names, inner, max_size=2),
    }
    plain = st.fixed_dictionaries(properties, optional=harmless)
    return st.one_of(plain, plain, st.fixed_dictionaries(properties, optional=elsewhere))


schemas = st.recursive(leaves, _around, max_leaves=8)


@given(schemas, pens)
def test_the_official_sdk_finds_the_same_in_a_schema(schema: JsonValue, pen: Pen) -> None:
    text = pen.value(schema)
    if find_invalid_x_mcp_header(schema) is not None:
        with pytest.raises(ValueError, match="x-mcp-header"):
            mirrored_parameters(text)
    else:
        assert dict(mirrored_parameters(text)) == x_mcp_header_map(schema)


# ---- How an argument is written ----


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('"us-west1"', b"us-west1"),
        ('"us west 1"', b"us west 1"),
        ('" us-west1"', b"=?base64?IHVzLXdlc3Qx?="),
        ('"us-west1 "', b"=?base64?dXMtd2VzdDEg?="),
        (r'"\tindented"', b"=?base64?CWluZGVudGVk?="),
        (r'"line1\r\nline2"', b"=?base64?bGluZTENCmxpbmUy?="),
        ('"Hello, 世界"', b"=?base64?SGVsbG8sIOS4lueVjA==?="),
        ('"=?base64?literal?="', b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ('""', b"=?base64??="),
        ("true", b"true"),
        ("false", b"false"),
        ("42", b"42"),
        ("-7", b"-7"),
        ("-0", b"0"),
        ("0.0e5", b"0"),
        ("1.0", b"1"),
        ("1e3", b"1000"),
        ("-1.20E+2", b"-120"),
        ("9007199254740993", b"9007199254740993"),
        ("1" + "0" * 5000, b"1" + b"0" * 5000),
        ("3.14159", b"3.14159"),
        ("1e999999999", b"1e999999999"),
        ("1e9999999999999", b"1e9999999999999"),
    ],
)
def test_a_value_is_written_as_the_protocol_says(value: str, written: bytes) -> None:
    arguments = b'{"other": 1, "region": ' + value.encode() + b"}"
    lines = param_header_lines([REGION], arguments)
    assert lines == b"Mcp-Param-Region: " + written + b"\r\n"
    assert header_mismatch([REGION], arguments, read(lines)) is None


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "{}", "null", "[]", "7", '{"region":', "[" * 10**5),
        *('{"region":null}', '{"region":{"a":1}}', '{"region":["a"]}', '{"Region":"a"}'),
    ],
)
def test_what_is_not_there_or_no_plain_value_is_not_written(arguments: str) -> None:
    assert param_header_lines([REGION], arguments.encode()) == b""
    assert header_mismatch([REGION], arguments.encode(), {}) is None
    assert header_mismatch([REGION], arguments.encode(), {b"mcp-param-region": b"a"}) is not None


def test_an_argument_inside_another_is_found_by_its_path() -> None:
    mirrored = [Repeated(("a", "b"), "B"), Repeated(("a", "c", "d"), "D"), Repeated(("a.b",), "Dot")]
    arguments = b'{"a": {"b": "x", "c": {"d": true, "b": 2}}, "b": "no"}'
    assert param_header_lines(mirrored, arguments) == b"Mcp-Param-B: x\r\nMcp-Param-D: true\r\n"
    assert param_header_lines(mirrored, b'{"a": "b"}') == b""


def test_a_tool_without_mirrors_writes_and_compares_nothing() -> None:
    assert param_header_lines([], b"not even JSON") == b""
    assert header_mismatch([], b"not even JSON", {b"mcp-param-region": b"\xff"}) is None


TYPES: dict[str, st.SearchStrategy[JsonValue]] = {
    "string": texts,
    "boolean": st.booleans(),
    "integer": st.one_of(st.integers(), st.integers(-(2**53), 2**53).map(float)),
}
OTHER_VALUES = st.one_of(st.none(), st.just({"a": 1}), st.just([1]))


class Conversation(NamedTuple):
    """A tool's schema, what it repeats, and arguments for it."""

    schema: dict[str, JsonValue]
    mirrored: Sequence[Repeated]
    arguments: dict[str, JsonValue]


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    inside = draw(st.lists(st.booleans(), max_size=6))
    properties: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for number, nested in enumerate(inside):
        kind = draw(st.sampled_from(sorted(TYPES)))
        schema, values = properties, arguments
        if nested:
            schema = properties.setdefault("in", {"type": "object", "properties": {}})["properties"]
            values = arguments.setdefault("in", {})
        schema[f"p{number}"] = annotated(f"H{number}", kind)
        if draw(st.booleans()):
            values[f"p{number}"] = draw(st.one_of(TYPES[kind], OTHER_VALUES))
    root = {"type": "object", "properties": properties}
    mirrored = [Repeated(path, header) for path, header in mirrored_parameters(json.dumps(root))]
    return Conversation(root, mirrored, arguments)


def _decoded(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers.items()}


@given(conversations(), pens)
def test_what_we_write_agrees_with_the_body_and_satisfies_the_official_server(
    conversation: Conversation, pen: Pen
) -> None:
    spelled = pen.value(conversation.arguments).encode()
    lines = param_header_lines(conversation.mirrored, spelled)
    assert LINE.sub(b"", lines) == b""
    headers = read(lines)
    assert header_mismatch(conversation.mirrored, spelled, headers) is None
    assert validate_mcp_param_headers(conversation.schema, conversation.arguments, _decoded(headers)) is None


@given(conversations(), pens)
def test_what_the_official_client_writes_is_accepted(conversation: Conversation, pen: Pen) -> None:
    written = mcp_param_headers(x_mcp_header_map(conversation.schema), conversation.arguments)
    headers = {name.lower().encode(): value.encode() for name, value in written.items()}
    assert header_mismatch(conversation.mirrored, pen.value(conversation.arguments).encode(), headers) is None


@given(conversations(), st.data())
def test_a_header_that_was_tampered_with_is_found(conversation: Conversation, data: st.DataObject) -> None:
    arguments = json.dumps(conversation.arguments).encode()
    honest = read(param_header_lines(conversation.mirrored, arguments))
    assume(conversation.mirrored)
    name = b"mcp-param-" + data.draw(st.sampled_from(conversation.mirrored)).header.lower().encode()
    forged = dict(honest)
    if name in honest and data.draw(st.booleans()):
        del forged[name]
    else:
        forged[name] = data.draw(st.binary(max_size=8) | st.sampled_from([b"true", b"0", b"-1", b"a", b""]))
        # Blanks around a value, and another spelling of the same text or number, change nothing.
        assume(_meaning(forged[name]) != _meaning(honest.get(name)))
    complaint = header_mismatch(conversation.mirrored, arguments, forged)
    assert complaint is not None
    assert name[10:].decode() in complaint.lower()


def _meaning(value: bytes | None) -> object:
    if value is None:
        return None
    text = value.strip(b" \t").decode("latin-1").removeprefix("=?base64??=")
    return float(text) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) else text


# ---- What a header may say ----


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ('"Hello"', b"=?base64?SGVsbG8=?="),
        ('"Hello"', b"  Hello\t "),
        ('"SGVsbG8="', b"SGVsbG8="),
        ('"=?base64?SGVsbG8="', b"=?base64?SGVsbG8="),
        ('"=?BASE64?SGVsbG8=?="', b"=?BASE64?SGVsbG8=?="),
        ('""', b""),
        (r'"a\tb"', b"a\tb"),
        ("42", b"42.0"),
        ("42.0", b"42"),
        ("42", b"=?base64?NDI=?="),
        ("1e3", b"1000"),
        ("1e3", b"1e3"),
        ("9007199254740993", b"9007199254740993.000"),
    ],
)
def test_one_value_has_more_than_one_spelling(value: str, header: bytes) -> None:
    arguments = b'{"region": ' + value.encode() + b"}"
    assert header_mismatch([REGION], arguments, {b"mcp-param-region": header}) is None


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ('"Hello"', b"hello"),
        ('"Hello"', b"SGVsbG8="),
        ('"Hello"', b"Hello, Hello"),
        ('"Hello"', b"=?BASE64?SGVsbG8=?="),
        ('"42"', b"42.0"),
        ('"true"', b"True"),
        ("true", b"True"),
        ("true", b"1"),
        ("1", b"true"),
        ("9007199254740993", b"9007199254740992"),
        ("9007199254740993", b"9007199254740993.0000000000000001"),
        ("42", b"-42"),
        ("42", b"042"),
        ("42", b"+42"),
        ("42", b"0x2a"),
        ("42", b"4_2"),
        ("42", b""),
        ("1e9999999999999", b"1e9999999999998"),
        ("1e9999999999999", b"none"),
    ],
)
def test_another_value_is_found(value: str, header: bytes) -> None:
    arguments = b'{"region": ' + value.encode() + b"}"
    complaint = header_mismatch([REGION], arguments, {b"mcp-param-region": header})
    assert complaint == "Mcp-Param-Region differs from the argument 'region' in the body"


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ('"Hello"', b"=?base64?SGVsbG8?="),
        ('"Hello"', b"=?base64?SGVs!!!bG8=?="),
        ('"Gr\u00fc\u00dfe"', "Gr\u00fc\u00dfe".encode("latin-1")),
        ('"Gr\u00fc\u00dfe"', "Gr\u00fc\u00dfe".encode()),
        (r'"a\u0000b"', b"a\0b"),
        (r'"a\r\nb"', b"a\r\nb"),
        (r'"a\u007fb"', b"a\x7fb"),
    ],
)
def test_a_header_that_is_not_well_formed_is_found_even_if_it_says_the_same(
    value: str, header: bytes
) -> None:
    complaint = header_mismatch(
        [REGION], b'{"region": ' + value.encode() + b"}", {b"mcp-param-region": header}
    )
    assert complaint == "Mcp-Param-Region has characters that are not allowed or is not well-formed base64"


def test_a_missing_header_and_a_missing_argument_are_told_apart() -> None:
    assert header_mismatch([REGION], b'{"region": "a"}', {b"mcp-param-other": b"a"}) == (
        "Mcp-Param-Region is missing, but the body has the argument 'region'"
    )
    assert header_mismatch([REGION], b'{"region": null}', {b"mcp-param-region": b""}) == (
        "Mcp-Param-Region is there, but the body has no such value for the argument 'region'"
    )


def test_a_header_that_nobody_asked_for_is_no_mismatch() -> None:
    assert header_mismatch([REGION], b"{}", {b"mcp-param-other": b"\xff"}) is None


# ---- What is handed on ----


def test_only_the_clients_parameters_are_carried() -> None:
    headers = {b"mcp-name": b"a", b"mcp-param-region": b" eu ", b"x-mcp-param-b": b"1", b"mcp-param-z": b""}
    assert forwarded_param_headers(headers) == b"mcp-param-region: eu\r\nmcp-param-z: \r\n"


def test_a_value_that_we_would_not_accept_is_carried_if_it_cannot_hurt() -> None:
    assert forwarded_param_headers({b"mcp-param-a": b"=?base64?!?=", b"mcp-param-b": b"\xfc\tx"}) == (
        b"mcp-param-a: =?base64?!?=\r\nmcp-param-b: \xfc\tx\r\n"
    )


pieces = st.sampled_from(
    [b"mcp-param-", b"a", b"\r", b"\n", b"\0", b":", b" ", b"\t", b"\xff", b"\x7f", b"X-Evil"]
)
fragments = st.lists(pieces, max_size=6).map(b"".join)


@given(st.dictionaries(st.one_of(fragments, fragments.map(b"mcp-param-".__add__)), fragments, max_size=6))
@example({b"mcp-param-a\r\nx-evil: 1": b"b"})
@example({b"mcp-param-a": b"b\r\nx-evil: 1"})
@example({b"mcp-param-": b"b"})
def test_nothing_that_is_carried_can_be_read_as_something_else(headers: dict[bytes, bytes]) -> None:
    line = rb"mcp-param-[!#-'*+\-.0-9A-Z^-z|~]+: [\t\x20-\x7e\x80-\xff]*\r\n"
    assert re.sub(line, b"", forwarded_param_headers(headers)) == b""


def test_what_is_carried_is_bounded() -> None:
    assert (
        forwarded_param_headers({b"mcp-param-%d" % number: b"x" for number in range(10**5)}).count(b"\r\n")
        == 100
    )
    assert (
        len(forwarded_param_headers({b"mcp-param-%d" % number: b"x" * 1000 for number in range(100)}))
        <= 32 * 1024
    )
