"""Reads the delivery policy of a server entry, and refuses contradictions."""

from collections.abc import Mapping

import msgspec

from headgate.config.server_entries import (
    BreakerEntry,
    ProbeEntry,
    RetryEntry,
    ServerEntry,
    ToolPolicyEntry,
    is_custom_header,
)
from headgate.config.setting_values import display_value, invalid_value_error
from headgate.delivery.argument_template import fill_template
from headgate.domain.errors import ConfigError
from headgate.domain.upstream_policy import (
    BreakerSettings,
    Priority,
    Probe,
    Rate,
    RetrySettings,
    ToolClass,
    ToolSafety,
    UpstreamPolicy,
)
from headgate.domain.wildcards import matches_any

# A process whose connection is gone is gone a moment later.
_SETTLE_SECONDS = 1.0


def upstream_policy_of(owner: str, entry: ServerEntry, warnings: list[str]) -> UpstreamPolicy:
    """How the calls of a server are carried, which warnings call `owner`; raises ConfigError."""
    reader = _PolicyReader(owner, entry, warnings)
    everything = reader.policy("", entry, ToolSafety())
    retry, breaker = entry.retry or RetryEntry(), entry.breaker or BreakerEntry()
    return UpstreamPolicy(
        all=everything,
        tools=reader.tools(everything),
        trusts_annotations=entry.trust_annotations,
        retry_settings=RetrySettings(
            attempts=retry.attempts,
            base_seconds=retry.base_delay,
            # Whoever makes the first wait longer means it.
            longest_seconds=max(retry.max_delay, retry.base_delay),
        ),
        breaker_settings=BreakerSettings(failures=breaker.failures, rest_seconds=breaker.rest),
        window=entry.max_concurrency,
        queue=entry.max_queue,
    )


class _PolicyReader:
    """Reads the delivery settings of one server; a place is empty for the server, or names a tool."""

    def __init__(self, owner: str, entry: ServerEntry, warnings: list[str]) -> None:
        self._owner = owner
        self._entry = entry
        self._warnings = warnings

    def tools(self, everything: ToolSafety) -> dict[str, ToolSafety]:
        """The settings of single tools."""
        policies: dict[str, ToolSafety] = {}
        for tool, entry in self._entry.tools.items():
            before = next((pattern for pattern in policies if matches_any(tool, (pattern,))), None)
            place = f"tool {display_value(tool)}"
            if before is not None:
                what = f"has no effect: {display_value(before)} before it stands for it too"
                self._warnings.append(f"{self._place_name(place)} {what}")
            if entry.probe is not None and entry.probe.tool == tool:
                raise ConfigError(f"the probe of {place} is the tool itself", hint="name a tool that reads")
            policies[tool] = self.policy(place, entry, everything)
        return policies

    def policy(self, place: str, entry: ToolPolicyEntry, inherited: ToolSafety) -> ToolSafety:
        """The settings of one tool, or of all tools."""
        policy = ToolSafety(
            kind=ToolClass(entry.kind) if entry.kind else None,
            key_argument=entry.key_argument,
            key_header=self._key_header(place, entry.key_header),
            key_window_seconds=entry.key_window,
            probe=self._probe(place, entry.probe) if entry.probe else None,
            ledger=entry.ledger,
            priority=Priority(entry.priority) if entry.priority else None,
            rate=Rate(entry.rate.per_second, entry.rate.burst) if entry.rate else None,
            timeout_seconds=entry.call_timeout,
        )
        self._check_class(place, policy, inherited)
        return policy

    def _probe(self, place: str, entry: ProbeEntry) -> Probe:
        for name, argument in entry.arguments.items():
            try:
                fill_template(msgspec.json.encode(argument), _TEMPLATE_VALUES)
            except ValueError as error:
                where = f"probe in {place}" if place else "probe"
                # Without its message, which quotes the text: that may be a secret with a dollar in it.
                raise ConfigError(
                    f"{display_value(name)} of arguments in {where} cannot be filled in",
                    hint="write $arguments.name, $key or $op_id for what the call has, and $$ for a dollar",
                ) from error
        settle = entry.settle
        if settle is None and not self._entry.url:
            # A process that is gone is at work no more; a server behind a url may well be.
            settle = _SETTLE_SECONDS
        return Probe(entry.tool, msgspec.json.encode(entry.arguments), entry.happened, settle)

    def _key_header(self, place: str, header: str) -> str:
        if not header:
            return ""
        where = f"keyHeader in {place}" if place else "keyHeader"
        if not is_custom_header(header):
            raise invalid_value_error(
                where, display_value(header), "the name of a header that the gateway does not write itself"
            )
        if header.lower() in map(str.lower, self._entry.headers):
            raise ConfigError(
                f"{where} is {display_value(header)}, which headers holds", hint="take it out of one"
            )
        if self._entry.url:
            return header
        kind = "command" if self._entry.command else "builtin"
        self._warnings.append(
            f"'keyHeader' in {self._place_name(place)} has no effect on a server with {kind!r}"
        )
        # Left out, because a tool without a key that arrives must not count as keyed.
        return ""

    def _check_class(self, place: str, policy: ToolSafety, inherited: ToolSafety) -> None:
        kind = policy.kind or inherited.kind
        if kind is ToolClass.PROBEABLE and not (policy.probe or inherited.probe):
            raise ConfigError(
                f"{place or 'it'} is probeable, but has no probe", hint="add a probe, or name another class"
            )
        has_key = any(one.key_argument or one.key_header for one in (policy, inherited))
        if policy.kind is ToolClass.KEYED and not has_key:
            self._warnings.append(
                f"{self._place_name(place)} is keyed only if the server speaks rmcp with idempotency: "
                "it has neither keyArgument nor keyHeader"
            )

    def _place_name(self, place: str) -> str:
        return f"{place} of {self._owner}" if place else self._owner


class _AnyArguments(dict[str, object]):
    """Arguments with a value for every name, because those of a call are not known yet."""

    def __contains__(self, _name: object) -> bool:
        return True

    def __getitem__(self, _name: str) -> object:
        return self


_TEMPLATE_VALUES: Mapping[str, object] = {"arguments": _AnyArguments(), "key": "", "op_id": ""}
