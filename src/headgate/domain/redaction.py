"""Takes out of a text what nobody should read who is only told what went wrong."""

import re
from typing import Any, Final

import msgspec

REDACTED: Final = "[REDACTED]"
# The name of a secret, and what stands between it and its value: `=`, `:` or what JSON puts there.
_ASSIGNED = re.compile(
    r"""
    # `${secret:NAME}` refers to a secret and is not one.
    (?<! \$\{ (?=secret:[\w.-]{1,256}\}) )
    ( (?: pass(?:word|wd|phrase) | pwd | secret | token | authorization | credentials?
          | apikey | (?<![a-z])key | (?-i: (?<=[a-z])Key ) )
      (?: \\?["'] )? \s{0,3} [=:] \s{0,3} )
    (?: (?:bearer|basic|digest|token|negotiate) \s{1,3} )?
    # A reference to a variable is advice, not its value.
    (?! \$\{ (?:[A-Za-z]{1,16}:)? [\w.-]{1,256} \} (?: [\s,;&"'<>)\]] | $ ) )
    (?: \[REDACTED\]
      | \\"(?:[^"\\]|\\[^"])*+(?:\\")? | "(?:[^"\\]|\\.)*+"? | '[^']*+'? | [^\s,;&\#"'<>)}\]\\]++ )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BEARER = re.compile(r"\b(bearer\s{1,3})[\w.~+/=-]{8,}+", re.IGNORECASE)
# A user and a password, or a token, before the host of a URL.
_USER = re.compile(r"(://)[^\s/@?#]{1,1024}@")
_HOME = re.compile(
    r"""
    (?<![\w.]) (?: (?:/home/|/Users/) [^/\s:,;)'"\\]++ | /root\b )
    | \b[a-z]:\\{1,2}Users\\{1,2} [^\\/\s:,;)'"]++
    """,
    re.IGNORECASE | re.VERBOSE,
)


def cleaned(text: str) -> str:
    """The text without secrets and without the names of home directories."""
    return _HOME.sub("~", without_secrets(text))


def without_secrets(text: str) -> str:
    """The text without passwords, tokens and keys, where they stand beside their name or in a URL."""
    text = _USER.sub(rf"\1{REDACTED}@", text)
    text = _ASSIGNED.sub(rf"\1{REDACTED}", text)
    return _BEARER.sub(rf"\1{REDACTED}", text)


# A longer name is no name of a secret.
_LONGEST_NAME = 200
# More of a document is not read to be shown.
_MOST_READ_BYTES = 256 * 1024


def without_secret_members(document: bytes) -> str:
    """A JSON document as a text, without the values of members that are named like secrets."""
    try:
        value = msgspec.json.decode(document) if len(document) <= _MOST_READ_BYTES else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if value is None:
        return without_secrets(document[:_MOST_READ_BYTES].decode("utf-8", "replace"))
    return msgspec.json.encode(_without_secret_values(value)).decode()


def _without_secret_values(value: Any) -> Any:
    match value:
        case dict():
            return {
                name: REDACTED if _names_secret(name) else _without_secret_values(member)
                for name, member in value.items()
            }
        case list():
            return [_without_secret_values(member) for member in value]
        case str():
            return without_secrets(value)
        case _:
            return value


def _names_secret(name: str) -> bool:
    return REDACTED in without_secrets(f"{name[:_LONGEST_NAME]}=value")
