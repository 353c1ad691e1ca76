"""All cases, in the order of the table: importing a group registers what is in it."""

from campaign import (
    ambiguous,
    amplification,
    attacks,
    bad_input,
    child_bytes,
    child_life,
    clocks,
    connection_load,
    damage,
    definitions,
    descriptors,
    drain,
    dropped,
    endings,
    fleet,
    framing,
    full_spool,
    fuzz,
    handles,
    isolation,
    keys,
    kills,
    ledger_faults,
    lifecycles,
    listed,
    listings,
    load,
    members,
    names,
    paused,
    profiles,
    questions,
    records,
    result_quota,
    sagas,
    searches,
    server_rules,
    short_sessions,
    shown,
    slow_clients,
    soak,
    spawn_attempts,
    stateless_rules,
    stolen,
    storms,
    subscribers,
    taint,
    tls,
    transitions,
    unanswered,
    unread,
    upstream_http,
    upstream_stdio,
)
from campaign.knowledge import (
    busy,
    full_disk,
    hostile,
    killed,
    odd_arguments,
    odd_texts,
    outages,
    pages,
    together,
)
from campaign.trial import CASES as _REGISTERED

_GROUPS = (
    fleet, upstream_stdio, child_bytes, child_life, full_spool, upstream_http, dropped, descriptors, tls,
    names, clocks, drain, ledger_faults, bad_input, framing, fuzz, slow_clients, searches, stolen,
    attacks, taint, isolation, stateless_rules, endings, handles, shown, lifecycles, questions, profiles,
    unread, unanswered, listed, listings, definitions, short_sessions, kills, transitions, sagas, keys,
    ambiguous, records, storms, subscribers, killed, outages, pages, hostile, odd_arguments, odd_texts,
    together, full_disk, busy, members, damage, load, connection_load, result_quota, paused, soak,
    spawn_attempts, amplification, server_rules,
)  # fmt: skip

_LETTERS = "CLFSBARMK"

CASES = {
    case_id: _REGISTERED[case_id]
    for case_id in sorted(_REGISTERED, key=lambda one: (_LETTERS.index(one[0]), one))
}

# What a name stands for beside the ids of single cases.
SECTIONS = {
    "delivery": [one for one in CASES if one[0] == "S" or "F01" <= one <= "F25"],
    "knowledge": [one for one in CASES if one[0] == "K"],
}
