"""What a right answer looks like, checked cheaply enough to check every one."""

from typing import Final

from testkit.servers.prepared_answers import payload_result

# Ids keep one width, so that `"id":1000001` cannot be the beginning of another id.
FIRST_ID: Final = 1_000_000
LAST_ID: Final = 9_999_999
_EDGE: Final = 512
_PROBE: Final = 48
_PREFIX: Final = b'"text":"'


class Expected:
    """The text that an upstream sends, and how to recognise it inside an answer of any envelope."""

    def __init__(self, result_bytes: int) -> None:
        result = payload_result(result_bytes)
        start = result.index(_PREFIX) + len(_PREFIX)
        self._text = result[start : result.rindex(b'"}]')]

    def fault(self, body: bytearray | bytes, start: int, end: int, number: int, *, whole: bool) -> str:
        """Why `body[start:end]` does not answer call `number`, or nothing if it does.

        With `whole` every byte of the text is compared, otherwise its length and both its ends:
        comparing 10 MB on each call would make the generator the bottleneck.
        """
        marker = b'"id":%d' % number
        if (
            body.find(marker, start, start + _EDGE) < 0
            and body.find(marker, max(start, end - _EDGE), end) < 0
        ):
            return f"the answer does not carry id {number}: {bytes(body[start : min(end, start + 200)])!r}"
        text = self._text
        begin = body.find(text[:_PROBE], start, min(end, start + _EDGE + _PROBE))
        after = begin + len(text)
        if begin < 0 or after > end or body[after - _PROBE : after + 1] != text[-_PROBE:] + b'"':
            return f"the answer does not hold the result: {bytes(body[start : min(end, start + 300)])!r}"
        if whole and body[begin:after] != text:
            return "the text of the result was altered"
        return ""
