"""Results of the stateless era that ask for something before they go on."""

import secrets
from collections.abc import Mapping

import msgspec
from msgspec import DecodeError, Raw

from headgate.domain.call import Answer
from headgate.wire.envelope import decode_object, encode_object
from headgate.wire.results import INPUT_REQUIRED

# Only these may be answered with questions.
ASKING_METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
RESPONSES = "inputResponses"
STATE = "requestState"
_LINK_ID = "elicitationId"


class Question(msgspec.Struct, frozen=True):
    """One request of the upstream to the client."""

    method: str
    params: Raw = Raw(b"")


class Questions(msgspec.Struct, frozen=True, rename="camel"):
    """Everything that an upstream wants to know, and what it wants to be reminded of."""

    result_type: str
    input_requests: dict[str, Question] = {}
    request_state: str | None = None


def questions_in(answer: Answer) -> Questions | None:
    """What a result asks for; None when it asks for nothing. Raises ValueError when it cannot be read."""
    result = answer.result
    # Large results are on disk, and nobody asks a question of a megabyte.
    if not answer.typed or not isinstance(result, bytes) or INPUT_REQUIRED not in result:
        return None
    try:
        kind = decode_object(result).get("resultType", b"")
        if bytes(kind) != INPUT_REQUIRED:
            return None
        return msgspec.json.decode(result, type=Questions)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"questions that cannot be read ({error})") from error


def in_handshake_words(question: Question) -> bytes:
    """The params of a question as the handshake era has them, where a link that is to be opened has an id."""
    params = bytes(question.params)
    if question.method != "elicitation/create" or b'"url"' not in params:
        return params
    try:
        members = decode_object(params)
    except (DecodeError, UnicodeDecodeError):
        return params
    if bytes(members.get("mode", b"")) != b'"url"' or _LINK_ID in members:
        return params
    return encode_object({**members, _LINK_ID: Raw(msgspec.json.encode(secrets.token_urlsafe(16)))})


def with_state(answer: Answer, state: str) -> Answer:
    """The same questions with another reminder."""
    assert isinstance(answer.result, bytes)
    members = decode_object(answer.result)
    members[STATE] = Raw(msgspec.json.encode(state))
    return Answer(encode_object(members), typed=True)


def asking(questions: Mapping[str, Question], state: str) -> Answer:
    """A result that asks the client."""
    asked = {
        key: Raw(encode_object({"method": Raw(msgspec.json.encode(each.method)), **_params(each)}))
        for key, each in questions.items()
    }
    members = {
        "resultType": Raw(INPUT_REQUIRED),
        "inputRequests": Raw(encode_object(asked)),
        STATE: Raw(msgspec.json.encode(state)),
    }
    return Answer(encode_object(members), typed=True)


def _params(question: Question) -> dict[str, Raw]:
    return {"params": question.params} if question.params else {}
