"""All cases, in the order of the table: importing a group registers what is in it."""

from campaign import (
    ambiguous,
    amplification,
    attacks,
    bad_input,
    call_endings,
    child_bytes,
    child_life,
    client_handles,
    clocks,
    connection_load,
    damage,
    definitions,
    descriptors,
    dns_faults,
    drain,
    dropped,
    fleet,
    foreign_results,
    framing,
    full_spool,
    fuzz,
    isolation,
    keys,
    kills,
    ledger_faults,
    lifecycles,
    listings,
    load,
    many_members,
    paused,
    profiles,
    questions,
    records,
    result_quota,
    sagas,
    searches,
    server_listings,
    server_rules,
    short_sessions,
    slow_clients,
    soak,
    spawn_attempts,
    stateless_rules,
    storms,
    subscribers,
    taint,
    tls,
    transitions,
    unanswered,
    unread,
    upstream_http,
    upstream_stdio,
    visible_items,
)
from campaign.knowledge import (
    concurrent_ingestion,
    full_disk,
    hostile_documents,
    ingestion_kills,
    odd_arguments,
    odd_texts,
    outages,
    pages,
    search_under_load,
)
from campaign.trial import CASES as _REGISTERED

_GROUPS = (
    fleet, upstream_stdio, child_bytes, child_life, full_spool, upstream_http, dropped, descriptors,
    tls, dns_faults, clocks, drain, ledger_faults, bad_input, framing, fuzz, slow_clients, searches,
    foreign_results, attacks, taint, isolation, stateless_rules, call_endings, client_handles,
    visible_items, lifecycles, questions, profiles, unread, unanswered, server_listings, listings,
    definitions, short_sessions, kills, transitions, sagas, keys, ambiguous, records, storms,
    subscribers, ingestion_kills, outages, pages, hostile_documents, odd_arguments, odd_texts,
    concurrent_ingestion, full_disk, search_under_load, many_members, damage, load, connection_load,
    result_quota, paused, soak, spawn_attempts, amplification, server_rules,
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
