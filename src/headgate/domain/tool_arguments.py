"""Reads the arguments of the gateway's own tools: lenient with their spelling, strict with unknown names."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import DecodeError, Raw, ValidationError
from msgspec.inspect import EnumType, ListType, LiteralType, RawType, StrType, UnionType, type_info

from headgate.domain.errors import InvalidArguments, UnknownArgument
from headgate.domain.payload import decode_or

_Shape = TypeVar("_Shape", bound=msgspec.Struct)
_Value = TypeVar("_Value")
# Arguments that are not there, in either spelling.
_NONE = (b"", b"null")
# Plain words for the types of msgspec.
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "array | str": "a list of texts",
}
_ENUM = re.compile(r"^[Ii]nvalid enum value")
# Names for the container of the arguments of a nested call; models write each of these.
ARGUMENT_CONTAINERS: Final = ("args", "arguments", "params", "parameters", "input")
# What a client adds to the arguments of every tool, whatever its schema: Gemini CLI says with it whether the
# call waits for those before it, so it is no argument that a model means for the tool.
_ADDED_BY_CLIENTS: Final = frozenset(("wait_for_previous",))
_LONGEST_SHOWN: Final = 60
_LONGEST_CHECKED_BYTES: Final = 64 * 1024
_MOST_NAMED: Final = 4
# Names of an argument in other tools; the first that the called tool has is suggested.
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    word: meant
    for words, meant in {
        "name tool tool_name toolname": ("name", "tool", "toolName"),
        "id": ("cache_id", "transaction_id", "op_id"),
        "q text question search search_query": ("query", "pattern"),
        "regex regexp": ("pattern",),
        "server": ("servers",),
        "count n k top top_k num_results max_results limit": ("limit", "max_results"),
        "ignore_case": ("case_insensitive",),
        "depth": ("max_depth",),
        "statement": ("sql",),
        "timeout timeout_seconds": ("timeout_ms",),
    }.items()
    for word in words.split()
}
# Also with a sign or without a digit before the point, which JSON does not allow.
_NUMBER: Final = re.compile(r"[+-]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})")
_object = msgspec.json.Decoder(dict[str, Raw])


class ArgumentReader(Generic[_Shape]):
    """Reads the arguments of one tool into a struct that declares their types, limits and defaults.

    A number, a flag or a list may come as a text that holds it, and a list of one without its brackets.
    A name that the tool does not have is refused with the nearest one, and never dropped.
    """

    def __init__(
        self,
        tool: str,
        shape: type[_Shape],
        *,
        example: str,
        choices: Mapping[str, str] | None = None,
        container: str = "",
        required: Sequence[str] = (),
    ) -> None:
        """`example` is the hint of every refusal; `choices` lists the words that an argument accepts.

        A tool that calls another one names the `container` of the other's arguments as its schema does.
        """
        self._tool = tool
        self._shape = shape
        self._example = example
        self._choices = choices or {}
        self._container = container
        self._required = required
        self._known = (*shape.__struct_fields__, *filter(None, [container]))
        # The fields that are lists, and those that are numbers or flags: a text is none of them itself.
        lists: list[str] = []
        scalars: list[str] = []
        for field in msgspec.structs.fields(shape):
            type_ = type_info(field.type)
            kinds = type_.types if isinstance(type_, UnionType) else (type_,)
            if any(isinstance(kind, StrType | EnumType | LiteralType | RawType) for kind in kinds):
                continue
            (lists if any(isinstance(kind, ListType) for kind in kinds) else scalars).append(field.name)
        self._lists, self._scalars = lists, scalars

    def read(self, params: Mapping[str, Raw]) -> _Shape:
        """The arguments of a call; raises InvalidArguments, and UnknownArgument for a name that is none."""
        given = argument_members(params, self._tool, self._example)
        accepted = ARGUMENT_CONTAINERS if self._container else ()
        target = text_member(given, "tool") if "tool" in self._known else ""
        refuse_unknown(self._tool, given, self._known, hint=self._example, accepted=accepted, target=target)
        rewritten = {name: _as_list(given[name]) for name in self._lists if _is_text(given, name)}
        rewritten |= {name: _stripped(given[name]) for name in self._scalars if _is_text(given, name)}
        arguments = Raw(msgspec.json.encode(given | rewritten)) if rewritten else _arguments(params)
        try:
            found = msgspec.json.decode(arguments, type=self._shape, strict=False)
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _unreadable(self._tool, error, self._example, self._choices) from error
        for name in self._required:
            if getattr(found, name) in (None, ""):
                raise InvalidArguments(self._tool, f"{name} is not given", hint=self._example)
        return found

    def read_nested(self, params: Mapping[str, Raw]) -> Raw:
        """The arguments of the call inside the call; raises InvalidArguments."""
        given = argument_members(params, self._tool, self._example)
        return nested_arguments(given, self._tool, self._example, name=self._container)


def _is_text(given: Mapping[str, Raw], name: str) -> bool:
    return name in given and bytes(given[name])[:1] == b'"'


def _as_list(value: Raw) -> Raw:
    """The list of texts that a text holds as JSON, or a list of that one text."""
    text = decode_or(value, str, None)
    if text is None:
        return value
    texts = list_in_text(text, list[str])
    return Raw(msgspec.json.encode([text] if texts is None else texts))


def _stripped(value: Raw) -> Raw:
    text = decode_or(value, str, None)
    return value if text is None else Raw(msgspec.json.encode(text.strip()))


def list_in_text(text: str, kind: type[list[_Value]]) -> list[_Value] | None:
    """The list that a text holds as JSON, as some clients send it; None where it holds none."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (DecodeError, UnicodeError, RecursionError):
        return None


def lenient_value(value: object, kind: type[_Value]) -> _Value | None:
    """A number or a flag, also one that came as a text; None where it is none."""
    if isinstance(value, str):
        value = value.strip()
        if _NUMBER.fullmatch(value):
            value = float(value) if "." in value else int(value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except (ValidationError, UnicodeError):
        return None


def argument_members(params: Mapping[str, Raw], tool: str, example: str) -> dict[str, Raw]:
    """The members of a call's arguments, each as it came; raises InvalidArguments, also for repeated ones."""
    given = _arguments(params)
    try:
        found = _object.decode(given)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(tool, error, example) from error
    # Without white space and escapes, the members fill the arguments to the byte, unless one is dropped.
    written = sum(len(name) + len(value) + 4 for name, value in found.items()) + 1
    if written != len(given) and (twice := _given_twice(given)):
        raise InvalidArguments(tool, f"{_quoted(twice)} is given twice", hint=example)
    return found


def _given_twice(given: Raw) -> str:
    """The first member that is there twice; none of a text that is too long to look through."""
    if len(given) > _LONGEST_CHECKED_BYTES:
        return ""
    pairs: list[tuple[str, object]] = []

    def keep(members: list[tuple[str, object]]) -> None:
        # The last that is read is the outermost.
        pairs[:] = members

    try:
        json.loads(bytes(given), object_pairs_hook=keep, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return ""
    counts = Counter(name for name, _ in pairs)
    return next((name for name, count in counts.items() if count > 1), "")


def _unreadable(
    tool: str, error: Exception, example: str, allowed: Mapping[str, str] | None = None
) -> InvalidArguments:
    if isinstance(error, ValidationError):
        return InvalidArguments(tool, _problem(str(error), allowed or {}), hint=example)
    return InvalidArguments(tool, f"the arguments cannot be read ({error})", hint=example)


def _arguments(params: Mapping[str, Raw]) -> Raw:
    given = params.get("arguments", Raw(b"{}"))
    # Some clients send null for none.
    return Raw(b"{}") if _is_none(given) else given


def _is_none(value: Raw) -> bool:
    # Not copied where it is long.
    return len(value) <= len(b"null") and bytes(value) in _NONE


def text_member(given: Mapping[str, Raw], name: str) -> str:
    """The text of a member, such as the tool that a call names; empty where it is missing or no text."""
    return decode_or(given.get(name, b'""'), str, "")


def refuse_unknown(
    owner: str,
    given: Collection[str],
    known: Sequence[str],
    *,
    hint: str,
    accepted: Collection[str] = (),
    target: str = "",
) -> None:
    """Raises UnknownArgument for a member that is neither known nor accepted as another name of one."""
    unknown = unknown_names(given, (*known, *accepted))
    if unknown:
        raise UnknownArgument(unknown_argument_message(owner, unknown, known), hint=hint, target=target)


def unknown_names(given: Collection[str], known: Collection[str]) -> list[str]:
    """The members that a tool does not have; one that a client adds to every call is not among them."""
    return [name for name in given if name not in known and name not in _ADDED_BY_CLIENTS]


def unknown_argument_message(
    owner: str,
    unknown: Sequence[str],
    known: Sequence[str],
    synonyms: Mapping[str, tuple[str, ...]] = _SYNONYMS,
    *,
    what: str = "argument ",
) -> str:
    """One sentence: what `owner` does not have, the nearest that it has, and all that it has."""
    others = ", ".join(map(_quoted, unknown[1:_MOST_NAMED]))
    first = f"{owner} has no {what}{_quoted(unknown[0])}{f' (nor {others})' if others else ''}"
    allowed = f"allowed: {', '.join(sorted(known))}" if known else "it takes none"
    # A call may have thousands of members.
    likely = (_nearest(name, known, synonyms) for name in unknown[:_MOST_NAMED])
    nearest = next(filter(None, likely), "")
    return f"{first}; did you mean {nearest}? {allowed}" if nearest else f"{first}; {allowed}"


def _nearest(name: str, known: Sequence[str], synonyms: Mapping[str, tuple[str, ...]]) -> str:
    word = name[:_LONGEST_SHOWN].lower()
    meant = synonyms.get(word)
    if meant is not None:
        # A word that means something else here is not misspelt.
        return next((argument for argument in meant if argument in known), "")
    spelt = {argument.lower(): argument for argument in known}
    near = difflib.get_close_matches(word, spelt, n=1)
    return spelt[near[0]] if near else ""


def _quoted(name: str) -> str:
    text = repr(name[: 2 * _LONGEST_SHOWN])
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def nested_arguments(
    given: Mapping[str, Raw], owner: str, example: str, *, name: str = "args", within: str = ""
) -> Raw:
    """The arguments of the call inside a call, whatever their container is called; none is `{}`.

    The container may be a text that holds the object as JSON. Raises InvalidArguments, also for two
    containers: neither is dropped. `name` is the container's name in the schema, `within` the member of
    the call that holds it.
    """
    there = [each for each in given if each in ARGUMENT_CONTAINERS and not _is_none(given[each])]
    if len(there) > 1:
        problem = f"{' and '.join(within + each for each in there)} are both given"
        if len(there) > 2:
            problem = f"{', '.join(within + each for each in there)} are all given"
        raise InvalidArguments(owner, problem, hint=f"give the arguments once, in {within}{name}")
    if not there:
        return Raw(b"{}")
    return object_argument(bytes(given[there[0]]), owner, f"{within}{there[0]}", example)


def object_argument(value: bytes, tool: str, argument: str, example: str) -> Raw:
    """An object that may have been sent as a text; raises InvalidArguments."""
    if value[:1] == b'"':
        try:
            inner = msgspec.json.decode(value, type=str).strip()
            msgspec.json.decode(inner or "{}")
        except (DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = f"{argument} is a text that is no JSON ({error})"
            raise InvalidArguments(tool, problem, hint=example) from error
        value = b"{}" if inner.encode() in _NONE else inner.encode()
    if value in _NONE:
        return Raw(b"{}")
    if value[:1] != b"{":
        raise InvalidArguments(tool, f"{argument} is not an object", hint=example)
    return Raw(value)


def _problem(message: str, allowed: Mapping[str, str]) -> str:
    """The message of msgspec in another order: the argument, then its required type."""
    what, at, where = message.partition(" - at ")
    argument = where.strip("`").removeprefix("$").removeprefix(".")
    if _ENUM.match(what) and argument in allowed:
        # The value itself may be long.
        what = f"expected {allowed[argument]}"
    for kind, words in _WORDS.items():
        what = what.replace(f"`{kind} | null`", words).replace(f"`{kind}`", words)
    what = what[:1].lower() + what[1:]
    return f"{argument or 'arguments'}: {what}" if at else what
