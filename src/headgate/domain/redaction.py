"""Takes out of a text what nobody should read who is only told what went wrong."""

import re
from typing import Final

REDACTED: Final = "[REDACTED]"
# The name of a secret, and what stands between it and its value: `=`, `:` or what JSON puts there.
_ASSIGNED = re.compile(
    r"""
    ( (?: pass(?:word|wd|phrase) | pwd | secret | token | authorization | credentials?
          | apikey | (?<![a-z])key | (?-i: (?<=[a-z])Key ) )
      (?: \\?["'] )? \s{0,3} [=:] \s{0,3} )
    (?: (?:bearer|basic|digest|token|negotiate) \s{1,3} )?
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
