"""Errors that only connections to upstreams raise."""

from headgate.domain.errors import Effect, HeadgateError, UpstreamError, quoted


class UpstreamNack(UpstreamError):
    """The upstream said with a NACK that it did not process the call; nothing happened."""

    code = "TEMPORARY_FAILURE"
    number = 1004
    http_status = 503

    def __init__(self, upstream: str, what: str, code: str) -> None:
        self.upstream_code = code
        super().__init__(
            f"{upstream!r} did not accept {what!r} ({quoted(code) or 'without a reason'})",
            hint="look at the code that it gave, and try again if that may help",
        )


class UpstreamOutcomeUnknown(UpstreamError):
    """The upstream is a gateway itself, and does not know what became of the call."""

    code = "NETWORK_ERROR"
    number = 1003
    http_status = 502
    effect = Effect.UNKNOWN
    may_still_run = True

    def __init__(self, upstream: str, what: str, code: str) -> None:
        super().__init__(
            f"{upstream!r} does not know what became of {what!r} ({quoted(code) or 'without a reason'}), "
            "so it may have been carried out",
            hint="check whether it was carried out before trying again",
        )


class TransferIntegrityError(HeadgateError):
    """A chunk of a large result does not match its hash; the call itself was carried out."""

    code = "INTEGRITY_ERROR"
    number = 1014
    http_status = 502
    retryable = True
    effect = Effect.DONE

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} does not match its sha-256", hint="fetch that part again")


class VersionMismatch(UpstreamError):
    """The upstream speaks no protocol version that we speak."""

    code = "VERSION_MISMATCH"
    number = 1013
    http_status = 400

    def __init__(self, upstream: str, theirs: str) -> None:
        super().__init__(
            f"{upstream!r} speaks {theirs}, which this gateway does not",
            hint="update the gateway or the server",
        )


class UpstreamAuthRefused(UpstreamError):
    """The upstream refused the gateway's credentials or its request; nothing happened."""

    code = "AUTH_INVALID"
    number = 1021
    http_status = 401

    def __init__(self, upstream: str, status: int) -> None:
        super().__init__(
            f"{upstream!r} refused the gateway with HTTP {status}",
            hint=f"check the headers configured for {upstream!r}",
        )


class UpstreamRequestRefused(UpstreamError):
    """The upstream refused the request as such; nothing happened."""

    code = "CONNECTION_ERROR"
    number = 1002
    http_status = 502

    def __init__(self, upstream: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{upstream!r} refused the request: {quoted(reason)}", hint="check the server's URL and headers"
        )


class UpstreamRateLimited(UpstreamError):
    """The upstream says that it is asked too often; nothing happened."""

    code = "RATE_LIMIT"
    number = 1006
    http_status = 429
    retryable = True

    def __init__(self, upstream: str, retry_after_seconds: float) -> None:
        super().__init__(
            f"{upstream!r} is asked too often",
            hint=f"try again in {retry_after_seconds:g} s",
            retry_after_seconds=retry_after_seconds,
        )
