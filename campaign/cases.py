"""All cases, in the order of the table: importing a group registers what is in it."""

from campaign import (
    attacks,
    bad_input,
    child_bytes,
    child_life,
    definitions,
    dropped,
    endings,
    fleet,
    framing,
    fuzz,
    handles,
    isolation,
    lifecycles,
    listed,
    listings,
    profiles,
    questions,
    searches,
    shown,
    slow_clients,
    stateless_rules,
    stolen,
    unread,
    upstream_http,
    upstream_stdio,
    visitors,
)
from campaign.trial import CASES as _REGISTERED

_GROUPS = (
    fleet, upstream_stdio, child_bytes, child_life, upstream_http, dropped, bad_input, framing, fuzz,
    slow_clients, searches, stolen, attacks, isolation, stateless_rules, endings, handles, shown, lifecycles,
    questions, profiles, unread, listed, listings, definitions, visitors,
)  # fmt: skip

CASES = {
    case_id: _REGISTERED[case_id] for case_id in sorted(_REGISTERED, key=lambda i: ("CLFBARM".index(i[0]), i))
}
