"""MCP request headers: encoded values, and the arguments that `x-mcp-header` repeats as `Mcp-Param-*`; the
body stays authoritative.
"""

import base64
import binascii
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from headgate.protocol.jsonrpc import ABSENT, decode_object

_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")


def encode_header_value(text: str) -> bytes:
    """`text` as a header value that every HTTP implementation passes on unchanged."""
    looks_wrapped = text.startswith("=?base64?") and text.endswith("?=")
    if _PLAIN.fullmatch(text) and not looks_wrapped:
        return text.encode("ascii")
    return b"=?base64?" + base64.b64encode(text.encode()) + b"?="


def decode_header_value(value: bytes) -> str | None:
    """The text of a header value, or None if it is malformed."""
    text = value.decode("latin-1")
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return text
    try:
        payload = base64.b64decode(wrapped[1], validate=True)
        # Two spellings of one value would let a header and a body disagree unnoticed.
        if base64.b64encode(payload).decode() != wrapped[1]:
            return None
        return payload.decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


_ANNOTATION = "x-mcp-header"
# Most schemas do not name headers and need not be parsed; the keyword may contain escapes.
_MENTION = re.compile(r"x-mcp-header|\\u00[267]")
# The characters of a header name; any other could end the line or start another.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_TYPES = ("string", "integer", "boolean")
# The protocol sets no limit. A request may have 100 headers, and some of them are its own.
_MOST_MIRRORS = 64
# Each name of a path costs another parse of the arguments around it.
_LONGEST_PATH = 16

# Keywords that contain schemas: one, a list, or some by name. `const`, `default`, `enum` and `examples` hold
# data, where the keyword has no meaning. The keywords of older drafts are included.
_SCHEMAS = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "oneOf",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_NAMED_SCHEMAS = frozenset(("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties"))

_PREFIX = b"mcp-param-"
# The characters of a value that is read, and of one that is only passed on.
_READABLE = re.compile(rb"[\t\x20-\x7e]*")
_HARMLESS = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
# More than any request may have.
_MOST_CARRIED_LINES = 100
_MOST_CARRIED_BYTES = 32 * 1024

_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,9}))?")
# Longer than any double; a greater power of ten is not written out.
_LONGEST_INTEGER = 400

# Floats stay text, since nothing here calculates with them.
_read_schema = Decoder[Any](Any, float_hook=str).decode
_read_text = Decoder(str).decode


class MirroredParameter(Protocol):
    """An argument, and the header that repeats it."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names of its path, from the outside in."""

    @property
    def header(self) -> str:
        """The name of the header without `Mcp-Param-`."""


def mirrored_parameters(schema: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """The arguments that an input schema requires to be repeated in headers: the path to each, and the name
    without `Mcp-Param-`; raises ValueError with one sentence if an annotation is not allowed."""
    if not _MENTION.search(schema):
        return ()
    try:
        root = _read_schema(schema)
    except (DecodeError, RecursionError, UnicodeError) as error:
        raise ValueError(f"its inputSchema cannot be read ({error})") from error
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for place in _subschemas(root):
        if _ANNOTATION not in place.schema:
            continue
        path, header = _annotated(place)
        first = found.setdefault(header.lower(), (path, header))
        if first[0] != path:
            pair = f"{_quoted_path(first[0])} and {_quoted_path(path)}"
            raise ValueError(f"its arguments {pair} want the same {_ANNOTATION}")
        if len(found) > _MOST_MIRRORS:
            raise ValueError(f"more than {_MOST_MIRRORS} of its arguments have an {_ANNOTATION}")
    return tuple(found.values())


class _SubschemaPosition(NamedTuple):
    """A schema, and the one around it if it describes its property `name`."""

    schema: dict[str, Any]
    around: "_SubschemaPosition | None" = None
    name: str = ""
    # Whether only `properties` lead here from the outermost schema.
    plain: bool = True

    def path(self) -> tuple[str, ...]:
        """The names of its path; built on demand, since a schema can be deep and wide."""
        names, place = [], self
        while place.around is not None:
            names.append(place.name)
            place = place.around
        return tuple(reversed(names))


def _subschemas(root: Any) -> Iterator[_SubschemaPosition]:
    """Every schema in a schema. References are not followed: their targets are in the schema, too."""
    waiting = deque([_SubschemaPosition(root)] if isinstance(root, dict) else [])
    while waiting:
        place = waiting.popleft()
        yield place
        for keyword, inner in place.schema.items():
            if keyword == "properties" and isinstance(inner, dict):
                for name, schema in inner.items():
                    if isinstance(schema, dict):
                        waiting.append(_SubschemaPosition(schema, place, name, place.plain))
            elif keyword in _SCHEMAS or keyword in _NAMED_SCHEMAS:
                for schema in _elsewhere(keyword, inner):
                    if isinstance(schema, dict):
                        waiting.append(_SubschemaPosition(schema, plain=False))


def _elsewhere(keyword: str, inner: Any) -> Iterable[Any]:
    """The schemas under `keyword` that describe no property with a fixed name."""
    if keyword in _NAMED_SCHEMAS:
        return inner.values() if isinstance(inner, dict) else ()
    return inner if isinstance(inner, list) else (inner,)


def _annotated(place: _SubschemaPosition) -> tuple[tuple[str, ...], str]:
    path, header = place.path(), place.schema[_ANNOTATION]
    if not place.plain or not path:
        raise ValueError(f"its inputSchema has an {_ANNOTATION} where more than plain properties lead")
    argument = f"its argument {_quoted_path(path)}"
    if len(path) > _LONGEST_PATH:
        raise ValueError(f"{argument} has an {_ANNOTATION} more than {_LONGEST_PATH} levels deep")
    if not isinstance(header, str) or not _TOKEN.fullmatch(header):
        raise ValueError(f"the {_ANNOTATION} of {argument} is no header's name")
    if place.schema.get("type") not in _TYPES:
        raise ValueError(f"{argument} has an {_ANNOTATION} but is no {' or '.join(_TYPES)}")
    return path, header


def param_header_lines(mirrored: Sequence[MirroredParameter], arguments: bytes) -> bytes:
    """`Mcp-Param-X: value` lines for the given arguments; `b""` for none."""
    return b"".join(
        b"Mcp-Param-%s: %s\r\n" % (mirror.header.encode(), encode_header_value(text))
        for mirror, text in _repeated(mirrored, arguments)
        if text is not None
    )


def header_mismatch(
    mirrored: Sequence[MirroredParameter],
    arguments: bytes,
    headers: Mapping[bytes, bytes],
    *,
    needed: bool = True,
) -> str | None:
    """Why headers (lower-case names) and arguments disagree, as one sentence, or None.

    Where they are not `needed`, one that is missing is no disagreement.
    """
    for mirror, text in _repeated(mirrored, arguments):
        value = headers.get(_PREFIX + mirror.header.lower().encode())
        name, argument = f"Mcp-Param-{mirror.header}", _quoted_path(mirror.path)
        if value is None and text is not None and needed:
            return f"{name} is missing, but the body has the argument {argument}"
        if value is None:
            continue
        if text is None:
            return f"{name} is there, but the body has no such value for the argument {argument}"
        value = value.strip(b" \t")
        said = decode_header_value(value) if _READABLE.fullmatch(value) else None
        if said is None:
            return f"{name} has characters that are not allowed or is not well-formed base64"
        # Two spellings of one number agree.
        form = _power_form(said) if isinstance(text, _NumberText) else None
        if said != text and (form is None or form != _power_form(text)):
            return f"{name} differs from the argument {argument} in the body"
    return None


def forwarded_param_headers(headers: Mapping[bytes, bytes]) -> bytes:
    """The client's own `Mcp-Param-*` lines to pass on; none that could be read as another header."""
    lines: list[bytes] = []
    size = 0
    for name, value in headers.items():
        # An unknown header of this kind must be passed on as it is.
        token = name[len(_PREFIX) :].decode("latin-1")
        if not name.startswith(_PREFIX) or not _TOKEN.fullmatch(token) or not _HARMLESS.fullmatch(value):
            continue
        line = b"%s: %s\r\n" % (name, value.strip(b" \t"))
        size += len(line)
        if size > _MOST_CARRIED_BYTES or len(lines) == _MOST_CARRIED_LINES:
            break
        lines.append(line)
    return b"".join(lines)


class _NumberText(str):
    """The text of a number, which may have other spellings."""

    __slots__ = ()


def _repeated(
    mirrored: Sequence[MirroredParameter], arguments: bytes
) -> Iterator[tuple[MirroredParameter, str | None]]:
    """Each mirrored parameter with the text that its header must have; None for no header."""
    objects: dict[tuple[str, ...], Mapping[str, Raw]] = {}
    for mirror in mirrored:
        if not objects:
            objects[()] = _members(Raw(arguments))
        value = ABSENT
        for depth, name in enumerate(mirror.path):
            around = mirror.path[:depth]
            if around not in objects:
                objects[around] = _members(value)
            value = objects[around].get(name, ABSENT)
        yield mirror, _text(bytes(value))


def _members(value: Raw) -> Mapping[str, Raw]:
    try:
        return decode_object(value)
    except (DecodeError, RecursionError, UnicodeError):
        # Not an object, so it has no members.
        return {}


def _text(value: bytes) -> str | None:
    """The JSON `value` as the text of a header; None if there is no header for it."""
    first = value[:1]
    if first in (b"", b"n", b"{", b"["):
        return None
    if first in (b"t", b"f"):
        return value.decode()
    if first != b'"':
        return _NumberText(_integer(value.decode()))
    try:
        return _read_text(value)
    except (DecodeError, UnicodeError):
        return None


def _integer(text: str) -> str:
    """A number without fraction as a plain integer (`1e3` and `1000.0` are 1000), any other as it is."""
    power_form = _power_form(text)
    if power_form is None:
        return text
    sign, digits, power = power_form
    if power < 0 or len(digits) + power > _LONGEST_INTEGER:
        return text
    return sign + digits + "0" * power


def _power_form(text: str) -> tuple[str, str, int] | None:
    """A number as its sign, its digits without outer zeros and a power of ten: equal for equal numbers,
    exact for any length, and without calculation with large numbers."""
    number = _NUMBER.fullmatch(text)
    if number is None:
        return None
    sign, whole, fraction, power = number.groups(default="")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return "", "0", 0
    return sign, significant, int(power or 0) - len(fraction) + len(digits) - len(significant)


def _quoted_path(path: tuple[str, ...]) -> str:
    """A path for a sentence, of any length and content."""
    text = ".".join(path)
    return repr(text if len(text) <= 80 else text[:79] + "…")
