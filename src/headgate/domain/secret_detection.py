"""Tells credentials from placeholders, paths and prose."""

import binascii
import re
from typing import Final

# They follow a name such as `token` in messages that hold no value.
_PROSE: Final = frozenset(
    re.findall(
        r"\S+",
        """
    a able absent access after again all allowed already also always an and any are arg args argument
    arguments as at auth authentication authorization based be because been before being between bool
    boolean budget but by bytes can cannot check contains could count credential credentials default
    denied deprecated did disabled do does doesn't don't either empty enabled environment eof error
    exceeded exceeds expected expects expired failed false field fields file first flag flags float for
    forbidden format found from function given got had has have header headers id identifier if ignored
    in incorrect instead int integer into invalid is isn't it its key keyword last least length less
    limit list literal long longer malformed map may method might mismatch missing more must name nan
    need needed needs never next nil no none nor not null number object of off ok on once one only
    operator option optional options or other page parameter parse pass password please present prompt
    provide provided query read refresh rejected replace request required requires resource response
    revoked same scheme scope secret secretstr see server set shall should shown since so source
    specified specify str string strings supplied symbol system take takes than that the their then
    there these they this through to token tokens too true try tuple twice type unauthorized undefined
    unexpected union unknown unless unset unspecified until usage use used user uses using valid
    validation value values variable variables via wanted was wasn't were when where which while will
    with within without word would wrong yes you your
        """,
    )
)
# Words in place of a value: there is none, or its kind.
_ABSENT: Final = frozenset(
    re.findall(
        r"\S+",
        """
    default empty expired false forbidden invalid missing nan nil no none not null off ok on optional
    required set true undefined unknown unset yes bool boolean bytes float int integer number object str
    string
        """,
    )
)
_PLACEHOLDER: Final = re.compile(
    r"""
    \[REDACTED\] | <[^<>\n]{0,80}>? | \[[A-Za-z_ .-]{0,80}\]?
    # References to variables, and the places of formats.
    | \$\{[^{}\s]{0,256}\}? | \$\(?[A-Za-z_][A-Z0-9_]{0,80}\)? | %[A-Za-z_]{1,60}%? | %\(\w{1,60}\)[a-z]
    | \{{1,2}[\w.:\ !-]{0,80}\}{0,2}
    | (?:process\.env|os\.environ|env|import\.meta\.env)[.\[][\w.\[\]"']{0,80}
    | [\w.]{1,60}\(\)? | [A-Za-z_]\w{0,40}(?:\.\w{1,40}){1,5}\([\w.,\ ]{0,60}
    # A value that is masked already, or an example of one.
    | [*.…•#-]{1,200} | [xX_]{3,200} | (?:your|my|the|some|example)[-_\ ][\w\ -]{0,60}
    | [A-Z]{3,20}(?:_[A-Z]{1,20}){0,6}
    | (?:[A-Z]{1,20}_){0,4}(?:TOKEN|KEY|SECRET|PASSWORD|VALUE)\d?
    """,
    re.VERBOSE,
)
_WORD: Final = re.compile(r"[A-Za-z]?[a-z]{0,30}(?:['-][a-z]{1,30}){0,3}")
_LONGEST_WORD: Final = 60
# Whole runs of letters and digits: words of a name are shorter, or have no digit.
_RUN: Final = re.compile(r"[A-Za-z0-9]+")
_LONG_RUN = 20
_MIXED_RUN = 10


def is_placeholder(value: str) -> bool:
    """Whether a value stands for a secret: `${NAME}`, `<token>`, `TOKEN`, `***`, nothing at all."""
    return not value.strip() or (len(value) <= 300 and _PLACEHOLDER.fullmatch(value.strip()) is not None)


def is_prose(value: str) -> bool:
    """Whether a value is a word that a sentence goes on with after a name such as `token`."""
    return len(value) <= _LONGEST_WORD and value.rstrip(".!?:").casefold() in _PROSE


def is_absent(value: str) -> bool:
    """Whether a value stands for no value: `null`, `false`, `required`."""
    return len(value) <= _LONGEST_WORD and value.casefold() in _ABSENT


def is_word(value: str) -> bool:
    """Whether a value may be any word: small letters after the first."""
    return len(value) <= _LONGEST_WORD and _WORD.fullmatch(value.rstrip(".!?:")) is not None


def is_path(value: str) -> bool:
    return (
        value.startswith(("/", "./", "../", "~/", "~", "file:"))
        or re.fullmatch(
            r"(?:[A-Za-z]:\\\S{0,500}|[\w./\\-]{1,200}\.(?:pem|key|crt|json|ya?ml|txt|env|toml|pub))", value
        )
        is not None
    )


def is_random(value: str) -> bool:
    """Whether a value has a run of letters and digits that no name and no word has."""
    for run in _RUN.findall(value[:4096]):
        if len(run) >= _LONG_RUN:
            return True
        if len(run) >= _MIXED_RUN and _mixed(run):
            return True
    return False


def _mixed(run: str) -> bool:
    return any(map(str.isdigit, run)) and any(map(str.isalpha, run))


def is_credential(value: str) -> bool:
    """Whether what follows `Bearer` is a token: words of prose have neither digits nor inner signs."""
    return len(value) >= 8 and (
        _mixed(value) or "." in value[1:-1] or is_random(value) or re.search("[a-z][A-Z]", value) is not None
    )


def is_user_and_password(value: str) -> bool:
    """Whether what follows `Basic` is a user and a password in base64."""
    bare = value[: len(value) // 4 * 4] if "=" not in value else value
    try:
        decoded = binascii.a2b_base64(bare[:400])
    except binascii.Error:
        return False
    return b":" in decoded and all(32 <= byte < 127 for byte in decoded)
