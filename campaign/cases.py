"""All cases, in the order of the table: importing a group registers what is in it."""

from campaign import (
    attacks,
    bad_input,
    child_bytes,
    child_life,
    dropped,
    fleet,
    framing,
    fuzz,
    isolation,
    slow_clients,
    upstream_http,
    upstream_stdio,
)
from campaign.trial import CASES as _REGISTERED

_GROUPS = (
    fleet, upstream_stdio, child_bytes, child_life, upstream_http, dropped, bad_input, framing, fuzz,
    slow_clients, attacks, isolation,
)  # fmt: skip

CASES = {
    case_id: _REGISTERED[case_id] for case_id in sorted(_REGISTERED, key=lambda i: ("CFBA".index(i[0]), i))
}
