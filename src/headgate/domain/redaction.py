"""Removes secrets and the names of home directories from texts that people and models read."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from headgate.domain.payload import decode_or
from headgate.domain.secret_detection import (
    is_absent,
    is_credential,
    is_path,
    is_placeholder,
    is_prose,
    is_random,
    is_user_and_password,
    is_word,
)

REDACTED: Final = "[REDACTED]"

# Every pattern below reads a text in linear time: repetitions are possessive (`*+`) and cannot match
# where the pattern begins, or it is bounded by a small number (docs/decisions/0075-redaction.md measures it).

# A value in quotes, in quotes that JSON has escaped, or up to the next sign that ends one.
_VALUE: Final = r"""
    \[REDACTED\]
    | \\{1,7}" (?:[^"\\]|\\(?!\\{0,6}"))*+ (?:\\{1,7}")?
    | "(?:[^"\\]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'? | `[^`\n]*+`?
    | [^\s,;&\#"'<>)}\]\\]++
"""
_SECRET_KEY: Final = (
    r"(?:api|access|secret|private|encryption|signing|signature|account|master|shared|subscription|auth"
    r"|client|app|application|license|service|deploy|session|webhook|storage|admin|jwt|hmac|ssh|gpg|cipher|vault)"
)
_NAME: Final = rf"""
    pass(?:word|wd|phrase|code) | pwd | secret | token | credentials? | apikey | {_SECRET_KEY}[ _.-]?key
"""

_PEM: Final = re.compile(
    r"""
    -----BEGIN[ ](?:[A-Z0-9]{1,16}[ ]){0,4}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
    (?: (?:[^-]|-(?!----))*+ -----END[ ][A-Z0-9 ]{0,80}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----
      # Cut off: whole lines of base64, and the beginning of one more.
      | (?: (?:\s|\\{1,7}[nr]|\|)*+ [A-Za-z0-9+/=]{24,}+ )++
        (?: (?:\s|\\{1,7}[nr]|\|)*+ (?=[A-Za-z+/]{0,24}[0-9+/=]) [A-Za-z0-9+/=]++ )?
      | (?:\s|\\{1,7}[nr])*+ (?=[A-Za-z+/]{0,24}[0-9+/=]) [A-Za-z0-9+/=]{4,}+
    )
    """,
    re.VERBOSE,
)
_PARAMETER: Final = r"""\w{1,40}=(?:\\{0,7}"[^"\n]*+"?|[^\s,"'\\]*+)"""
_AUTHORIZATION: Final = re.compile(
    rf"""
    ( (?:proxy-)?authorization
      (?: (?:\\{{0,7}}["'])? \s{{0,3}} (?:=>|[=:]) \s{{0,3}}
        | \\{{0,7}}["'] \s{{0,3}},\s{{0,3}} (?=b?\\{{0,7}}["']) )
      (?:\[\s{{0,3}})? (?:b(?=["']))? )
    ( (?: ([A-Za-z][\w-]{{0,30}}) \\?[ ]{{1,3}} )?+
      (?: {_PARAMETER} (?: [ ]{{0,2}},[ ]{{0,2}} {_PARAMETER} )++
        | {_VALUE} ) )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SCHEME: Final = re.compile(
    "bearer|basic|digest|token|negotiate|ntlm|apikey|dpop|hawk|oauth|signature|key|aws4-hmac-sha256",
    re.IGNORECASE,
)
_PAIR: Final = r"""[^\s=;,"'<>\[\]{}()]{1,128}=[^\s;,"'<>\\]*+"""
_COOKIE: Final = re.compile(
    rf"""
    ( \b(?:set-)?cookie2?
      (?: (?:\\{{0,7}}["'])? \s{{0,3}} (?:=>|[=:]) \s{{0,3}} | \\{{0,7}}["'] \s{{0,3}},\s{{0,3}} )
      (?:\[\s{{0,3}})? (?: b?\\{{0,7}}["'] )? )
    {_PAIR} (?: ;[ ]{{0,3}} {_PAIR} )*+
    | ( \b(?:[a-z]{{0,12}}sess(?:ion)?_?id|connect\.sid|csrftoken|__(?:secure|host)-[\w.-]{{1,60}}) = )
      (?= [^\s;,"']{{0,200}}\d ) [^\s;,"'<>&\\]{{8,}}+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FLAG: Final = re.compile(
    rf"""
    (?<![\w-])
    ( --? [a-z0-9_.-]{{0,40}}?
      (?: {_NAME} | pass | auth | bearer | jwt | pat | (?<![a-z])key )
      (?: = | \\{{0,7}}["'] \s{{0,3}},?\s{{0,3}} (?=\\{{0,7}}["']) | (?:[ ]{{1,3}}|\s{{1,2}}) (?!-) ) )
    ({_VALUE})
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ASSIGNED: Final = re.compile(
    rf"""
    # `${{secret:NAME}}` refers to a secret and is not one.
    (?<! \$\{{ (?=secret:[\w.-]{{1,256}}\}}) )
    ( (?: (?P<strong> {_NAME} )
        | (?P<weak> (?<![a-z])(?:key|cookie|auth) | (?-i: (?<=[a-z])(?:Key|Auth) ) )
        | (?<=[_.-])pass | (?<![a-z])pw | (?<=["'])pass(?=\\{{0,7}}["']) )
      (?: _? (?:\d{{1,3}}|prod|production|dev|staging|test|live|value|b64|base64|old|new) )?
      (?P<sign> (?: \\{{0,7}}["'`] )? \s{{0,3}} (?:=>|:=|[=:]|%3[ad]) (?:\s|\\{{1,7}}[nrt]){{0,4}} )
      (?:\[\s{{0,3}})? (?:[bru](?=["']))? )
    (?: (?:bearer|basic|digest|token|negotiate) \s{{1,3}} )?
    (?P<value> {_VALUE})
    """,
    re.IGNORECASE | re.VERBOSE,
)
# A removed word may have made its neighbour harmless: `password: xUnexpected token: abc`.
_MOST_PASSES: Final = 3
# They are places in a list, numbers of a protocol and words of a parser.
_HARMLESS_TOKENS: Final = re.compile(
    r"(?:page|next|prev|previous|continuation|progress|sync|cancell?ation|cancel|unexpected|illegal|expected|end"
    r"|start|stop|pad|bos|eos|unk|mask|per)[\s_.-]?$",
    re.IGNORECASE,
)
_HARMLESS_KEYS: Final = re.compile(
    r"(?:public|primary|foreign|cache|partition|routing|idempotency|duplicate|unique|object|map|group|dict"
    r"|lookup|index|hash|row|s3|file|any|parameter|item|sort|collection|tag|attachment)[\s_.-]?$",
    re.IGNORECASE,
)
# A name, and after it something that is no word: `token abc123def456`, `password is 'hunter2'`.
_NAMED: Final = re.compile(
    r"""
    \b( (?:password|passwd|passphrase|token|secret|api[ _-]?key) \s{1,2} (?:(?:is|was)\s{1,2})? )
    ( "[^"\n]{1,200}+" | '[^'\n]{1,200}+' | [^\s,;&"'<>()\[\]{}]{10,}+ )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BEARER: Final = re.compile(r"\b(bearer\s{1,3})([\w.~+/=-]{8,}+)", re.IGNORECASE)
_CHALLENGE: Final = re.compile(r"(?:realm|error|scope|resource_metadata|charset)\w{0,20}=")
_BASIC: Final = re.compile(r"\b(basic\s{1,3})([A-Za-z0-9+/]{8,}+={0,2})", re.IGNORECASE)
# A user and a password before the host of a URL, or a token; the password may not be encoded as it should.
_USER: Final = re.compile(
    r"""
    (\b[a-z][a-z0-9+.-]{0,20}|) (://)
    (?: ([^\s/?\#"'<>@:]{0,1024}) @
      | [^\s/?\#"'<>@:]{0,256} : (?! \d{1,5} (?:[/?\#\s"'<>),]|$) ) (?:[^\s/@"'<>]|/(?!/))++ @
        (?: [^\s/@?\#"'<>:,]{1,256} @ (?=[\w.-]) )? )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Their URLs name a user without a password, and no token.
_LOGINS: Final = re.compile(
    r"ssh|sftp|git|svn|rsync|postgres|mysql|maria|mongo|redis|amqp|ldap|smtp|imap|ftp", re.IGNORECASE
)
_DSN: Final = re.compile(
    r"""
    ((?<![\w.-])[\w.-]{1,64}:) [^\s@:/"']{1,256} (@(?:tcp|unix|udp)\()
    | (:thin:[\w.]{1,64}/) [^\s@/"']{1,256} (@)
    """,
    re.VERBOSE,
)
_QUERY: Final = re.compile(
    r"""([?&;](?:key|sig|signature|auth|jwt|code|sid|session|pass|hmac|x-(?:amz|goog)-[a-z-]{1,30})=)
    ([^\s&\#"'<>;\\]{6,}+)""",
    re.IGNORECASE | re.VERBOSE,
)
_COMMAND: Final = re.compile(
    r"""
    ( \bcurl\b [^\n|]{0,200}? \s(?:-u|--user)[ =]{0,2}["']?[^\s:"']{1,100}: ) [^\s"']++
    | ( \b(?:mysql|mysqldump|mariadb|mysqladmin)\b [^\n|]{0,200}? \s-p ) [^\s"'-][^\s"']*+
    | ( \b(?:sshpass[ ]-p|redis-cli\b[^\n|]{0,100}?\s-a) [ ]? ) [^\s"']++
    """,
    re.VERBOSE,
)
_JWT: Final = re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.(?:eyJ[\w-]{2,}+|[\w-]{10,}+)(?:\.[\w-]*+){0,3}")
# Tokens that are known by how they begin.
_ISSUED: Final = re.compile(
    r"""
    (?<![A-Za-z0-9])
    (?: gh[pousr]_[A-Za-z0-9]{10,}+ | github_pat_\w{10,}+
      | gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt)-[\w.-]{10,}+
      | xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{6,}+ | xapp-\d-[A-Za-z0-9-]{8,}+
      | A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])
      | AIza[\w-]{20,}+ | ya29\.[\w.-]{10,}+ | GOCSPX-[\w-]{10,}+ | 1//0[\w-]{20,}+
      | [sr]k_(?:live|test|prod)_[A-Za-z0-9]{8,}+ | whsec_[A-Za-z0-9+/=_-]{8,}+
      | npm_[A-Za-z0-9]{20,}+ | pypi-AgE[\w-]{8,}+ | hf_[A-Za-z0-9]{16,}+ | do[opr]_v1_[a-f0-9]{16,}+
      | SG\.[\w-]{10,}+\.[\w-]{10,}+ | shp(?:at|ss|ca|pa)_[a-fA-F0-9]{16,}+ | lin_api_[A-Za-z0-9]{16,}+
      | ntn_[A-Za-z0-9]{16,}+ | secret_[A-Za-z0-9]{32,}+ | sb[ps]_[a-f0-9]{20,}+ | sb_secret_[\w-]{10,}+
      | dapi[a-f0-9]{32} | hv[sbr]\.[\w-]{16,}+ | ATATT3[\w=-]{16,}+ | ATCTT3[\w=-]{16,}+ | figd_[\w-]{16,}+
      | sntry[su]_[\w=+/-]{16,}+ | glsa_[A-Za-z0-9_]{16,}+ | tskey-[a-z]{1,12}-[\w-]{10,}+
      | r8_[A-Za-z0-9]{20,}+
      | gsk_[A-Za-z0-9]{20,}+ | xai-[A-Za-z0-9]{20,}+ | pplx-[A-Za-z0-9]{20,}+ | tvly-[\w-]{16,}+
      | AGE-SECRET-KEY-1[A-Z0-9]{20,}+ | nvapi-[\w-]{20,}+ | rnd_[A-Za-z0-9]{20,}+ | PMAK-[a-f0-9-]{20,}+
      | hg_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}+ | key-[a-f0-9]{32} | v1\.0-[a-f0-9]{20,}+-[a-f0-9]{20,}+
      | (?:bot)?\d{8,10}:AA[\w-]{30,}+ | [MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,}+ )
    | (?<=hooks\.slack\.com/services/)[\w/]{20,}+ | (?<=/api/webhooks/)\d{6,}+/[\w-]{20,}+
    """,
    re.VERBOSE,
)
# Names of packages and of styles begin like these, so the rest decides.
_PERHAPS_ISSUED: Final = re.compile(r"(?<![A-Za-z0-9])(?:sk|rk|pypi|pat|fc|pk)-[A-Za-z0-9_-]{12,}+")
_HOME: Final = re.compile(
    r"""
    (?<![\w.]) (?: (?:/home/|/Users/) [^/\s:,;)'"\\]++ | /root\b )
    | \b[a-z]:\\{1,2}Users\\{1,2} [^\\/\s:,;)'"]++
    """,
    re.IGNORECASE | re.VERBOSE,
)


def redact(text: str) -> str:
    """The text without secrets and without the names of home directories."""
    return _HOME.sub("~", redact_secrets(text))


def redact_secrets(text: str) -> str:
    """The text without passwords, tokens, keys and cookies, known by their name, place or beginning."""
    for _ in range(_MOST_PASSES):
        before, lowered = text, text.lower()
        for rule in _RULES:
            if any(mark in lowered for mark in rule.marks):
                text = rule.pattern.sub(rule.replace, text)
        if text == before:
            break
    return text


_Match = re.Match[str]


class _RedactionRule(NamedTuple):
    # In small letters; a text that has none of them is not searched.
    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    replace: Callable[[_Match], str]


def _bare(value: str) -> str:
    """The value without its quotes and what escapes them."""
    return value.strip("\\\"'`")


def _prefixed(match: _Match) -> str:
    before, *after = filter(None, match.groups())
    return f"{before}{REDACTED}{''.join(after)}"


def _whole(match: _Match) -> str:
    return REDACTED


def _authorization(match: _Match) -> str:
    name, value, scheme = match.groups()
    credential = _bare(value[len(scheme) :].strip() if scheme else value)
    if scheme and not _SCHEME.fullmatch(scheme) and not is_random(credential):
        # A word of prose, or a credential without a scheme.
        rest = value[len(scheme) :]
        return match[0] if is_prose(scheme) or is_word(scheme) else f"{name}{REDACTED}{rest}"
    _, _, last = credential.rpartition(" ")
    if is_placeholder(last) or is_prose(last):
        return match[0]
    if name.rstrip("b").endswith(",") and " " not in credential and not is_credential(credential):
        return match[0]
    return f"{name}{REDACTED}"


# After the name of an option they are values.
_NOUNS: Final = ("secret", "password", "token")


def _flag(match: _Match) -> str:
    name, value = match.groups()
    bare = _bare(value)
    absent = is_absent(bare) if name.endswith("=") else is_prose(bare) and bare not in _NOUNS
    if is_placeholder(bare) or absent or (not name.endswith("=") and bare.startswith("-")):
        return match[0]
    if is_path(bare) and re.search("(?i)key|auth|pat|cred|pwd", name):
        return match[0]
    return f"{name}{REDACTED}"


def _assigned(match: _Match) -> str:
    value = match["value"]
    bare = _bare(value)
    # `token=secret` assigns; after a colon and a space a sentence may go on.
    assigns = bare is not value or match["sign"].endswith(("=", "%3d", "%3D"))
    absent = is_absent(bare) if assigns else is_prose(bare.removeprefix("-"))
    if is_placeholder(bare) or absent or _is_harmless(match, bare):
        return match[0]
    if bare is value and _goes_on_as_prose(match, bare):
        return match[0]
    return f"{match[1]}{REDACTED}"


# Their values may be paths.
_OF_FILES: Final = ("pwd", "credential", "private", "ssh", "gpg", "signing", "deploy")


def _is_harmless(match: _Match, value: str) -> bool:
    """Whether the name, with what stands before it, is that of something else than a secret."""
    name = match[1][: match.start("sign") - match.start()].casefold()
    before = match.string[max(0, match.start() - 16) : match.start()]
    if match["weak"] is not None:
        return _HARMLESS_KEYS.search(before) is not None or not _is_key(match, value)
    if name.startswith("token"):
        return _HARMLESS_TOKENS.search(before) is not None or (value.isdigit() and len(value) < 5)
    if name == "secret" and before.endswith(":"):
        # Part of the name of a resource, `arn:...:secret:NAME`.
        return True
    return is_path(value) and name.startswith(_OF_FILES)


def _is_key(match: _Match, value: str) -> bool:
    if is_path(value) or "://" in value:
        return False
    # `OPENAI_KEY=...`, as in the environment of a process.
    shouted = match.string[match.start() - 1 : match.start()] == "_" and match[1].startswith("KEY")
    return is_random(value) or (shouted and "=" in match["sign"])


def _goes_on_as_prose(match: _Match, value: str) -> bool:
    """Whether a sentence goes on after a colon: `password: field required`."""
    following = match.string[match.end() : match.end() + 2]
    spaced = match["sign"].endswith((" ", "\n", "n"))
    return spaced and is_word(value) and re.match(r" [a-z(]", following) is not None


def _named(match: _Match) -> str:
    bare = _bare(match[2])
    stated = bare != match[2] and match[1].rstrip().casefold().endswith(("is", "was"))
    secret = is_random(bare) or (stated and is_credential(f"{bare:>8}"))
    return f"{match[1]}{REDACTED}" if secret and not is_path(bare) and "://" not in bare else match[0]


def _credential(match: _Match) -> str:
    secret = is_credential(match[2]) and not _CHALLENGE.match(match[2])
    return f"{match[1]}{REDACTED}" if secret else match[0]


def _user_and_password(match: _Match) -> str:
    return f"{match[1]}{REDACTED}" if is_user_and_password(match[2]) else match[0]


def _user(match: _Match) -> str:
    scheme, sign, login = match.groups()
    if login is not None and (is_placeholder(login) or login == "git" or _LOGINS.search(scheme)):
        return match[0]
    return f"{scheme}{sign}{REDACTED}@"


def _queried(match: _Match) -> str:
    return f"{match[1]}{REDACTED}" if is_random(match[2]) or is_credential(match[2]) else match[0]


def _perhaps_issued(match: _Match) -> str:
    return REDACTED if is_random(match[0].partition("-")[2]) else match[0]


_RULES: Final = (
    _RedactionRule(("-----begin",), _PEM, _whole),
    _RedactionRule(("://",), _USER, _user),
    _RedactionRule(("@tcp(", "@unix(", "@udp(", ":thin:"), _DSN, _prefixed),
    _RedactionRule(("authorization",), _AUTHORIZATION, _authorization),
    _RedactionRule(("cookie", "sid", "sess", "csrftoken", "__secure-", "__host-"), _COOKIE, _prefixed),
    _RedactionRule(("--", " -", "'-", '"-'), _FLAG, _flag),
    _RedactionRule(
        ("pass", "pwd", "pw", "secret", "token", "credential", "key", "auth", "cookie"), _ASSIGNED, _assigned
    ),
    _RedactionRule(("pass", "token", "secret", "key"), _NAMED, _named),
    _RedactionRule(("bearer",), _BEARER, _credential),
    _RedactionRule(("basic",), _BASIC, _user_and_password),
    _RedactionRule(("?", "&", ";"), _QUERY, _queried),
    _RedactionRule(("curl", "mysql", "mariadb", "sshpass", "redis-cli"), _COMMAND, _prefixed),
    _RedactionRule(("eyj",), _JWT, _whole),
    _RedactionRule(
        ("_", "-", ".", ":", "akia", "asia", "aiza", "dapi", "1//0", "abia", "acca"), _ISSUED, _whole
    ),
    _RedactionRule(("sk-", "rk-", "pypi-", "pat-", "fc-", "pk-"), _PERHAPS_ISSUED, _perhaps_issued),
)


# A longer name is no name of a secret.
_LONGEST_NAME = 200
# The longest part of a document that is read.
_MOST_READ_BYTES = 256 * 1024


def redact_json(document: bytes) -> str:
    """A JSON document as a text, without the values of members that are named like secrets."""
    value = decode_or(document, object, None) if len(document) <= _MOST_READ_BYTES else None
    if value is None:
        return redact_secrets(document[:_MOST_READ_BYTES].decode("utf-8", "replace"))
    return msgspec.json.encode(_without_secret_values(value)).decode()


def _without_secret_values(value: Any) -> Any:
    match value:
        case dict():
            return {
                name: REDACTED if names_secret(name) else _without_secret_values(member)
                for name, member in value.items()
            }
        case list():
            return [_without_secret_values(member) for member in value]
        case str():
            return redact_secrets(value)
        case _:
            return value


def names_secret(name: str) -> bool:
    """Whether a variable, a header or a member of this name holds a secret."""
    return REDACTED in redact_secrets(f"{name[:_LONGEST_NAME]}=v4lue-of-a-secret")
