"""What fits a number of tokens: never more than that, the best first, and nothing is lost."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.catalog.listing_budget import (
    DetailLevel,
    FittedListing,
    ListingCandidate,
    ListingTokenMeter,
    NamedDefinition,
    OwnToolForms,
    fit_to_budget,
)
from headgate.catalog.listing_builder import BuiltListing, ListingBuilder
from headgate.catalog.listing_variant import ListingFormat
from headgate.catalog.own_tools import (
    CALL_DEFINITION,
    CALL_STUB,
    EXPAND_DEFINITION,
    EXPAND_STUB,
    RETRIEVE_STUB,
    retrieve_definition,
)
from headgate.catalog.public_names import CALL_TOOL, EXPAND_SCHEMA, RETRIEVE_TOOLS
from headgate.domain.client_profile import PLAIN_PROFILE
from headgate.domain.listing_mode import ListingMode
from headgate.protocol.protocol_version import Era
from headgate.results.tools import DEFINITIONS, NAMES
from headgate.results.tools import STUBS as READER_STUBS
from headgate.search.token_counter import count_tokens
from tests.catalog.real_servers import real_catalog, real_servers
from tests.catalog.sample_catalog import catalog_of
from tests.catalog.sample_listings import OWN_TOOLS, ListingFixture

SMALLEST = 500
EXPAND = (EXPAND_SCHEMA, EXPAND_DEFINITION)
STUBS = ((RETRIEVE_TOOLS, RETRIEVE_STUB), (CALL_TOOL, CALL_STUB))
OWN = OwnToolForms(
    expander=(EXPAND,),
    finders=(
        ((RETRIEVE_TOOLS, retrieve_definition(["a", "b"])), (CALL_TOOL, CALL_DEFINITION), EXPAND),
        (*STUBS, (EXPAND_SCHEMA, EXPAND_STUB)),
        STUBS,
    ),
)
# With those that read large results.
READING = msgspec.structs.replace(
    OWN,
    readers=tuple((name, DEFINITIONS[name]) for name in NAMES),
    reader_stubs=tuple((name, READER_STUBS[name]) for name in NAMES),
)


def tokens(tools: Sequence[NamedDefinition]) -> int:
    """Of the array as it is sent."""
    return count_tokens(b"[" + b",".join(definition for _, definition in tools) + b"]")


def definition(name: str, words: int) -> bytes:
    described = {"description": " ".join(["word"] * words)} if words else {}
    return json.dumps({"name": name, **described, "inputSchema": {"type": "object"}}).encode()


def candidate(name: str, words: int = 100, **more: Any) -> ListingCandidate:
    """A tool of about so many tokens, a fifth of it in few words, and a stub."""
    forms = (definition(name, words), definition(name, words // 5), definition(name, 0))
    return ListingCandidate(name, more.pop("server", "s"), forms, **more)


def fitted(
    candidates: Sequence[ListingCandidate], budget: int, most: int | None = None, own: OwnToolForms = OWN
) -> FittedListing:
    return fit_to_budget(candidates, own, budget, ListingTokenMeter(count_tokens), most=most)


def own_names(result: FittedListing) -> list[str]:
    return [name for name, _ in result.listed if name in OWN_TOOLS]


# Whatever the tools are.

texts = st.text(max_size=60) | st.sampled_from(
    ["word " * 200, "é" * 300, "\U0001f600" * 80, "a" * 2000, "1" * 400]
)
forms = st.builds(
    lambda text, schema: json.dumps({"description": text, "inputSchema": schema}, ensure_ascii=False).encode(
        errors="replace"
    ),
    texts,
    st.sampled_from([{"type": "object"}, {"type": "object", "properties": {"path": {"type": "string"}}}]),
)


@st.composite
def candidates(draw: st.DrawFn) -> list[ListingCandidate]:
    names = draw(st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=25))
    return [
        ListingCandidate(
            name,
            draw(st.sampled_from(["a", "b", "c"])),
            (draw(st.none() | forms), draw(st.none() | forms), draw(st.none() | forms)),
            draw(st.booleans()),
            draw(st.none() | st.integers(0, 30)),
        )
        for name in names
    ]


@given(
    candidates(),
    st.integers(SMALLEST, 4000) | st.sampled_from([SMALLEST, SMALLEST + 1, 1_000_000]),
    st.none() | st.integers(3, 40),
)
@example([], SMALLEST, 3)
@settings(max_examples=60)
def test_neither_the_tokens_nor_the_tools_are_ever_more_than_allowed_and_nothing_is_lost(
    tools: list[ListingCandidate], budget: int, most: int | None
) -> None:
    result = fitted(tools, budget, most)
    assert result.tokens == tokens(result.listed) <= budget
    assert most is None or len(result.listed) <= most
    own = own_names(result)
    listed = [name for name, _ in result.listed[len(own) :]]
    # In the order of the catalog, behind the gateway's own tools.
    assert listed == [one.name for one in tools if result.levels[one.name] is not DetailLevel.NONE]
    assert [form for _, form in result.listed[len(own) :]] == [
        one.form(result.levels[one.name]) for one in tools if one.name in listed
    ]
    assert result.levels.keys() == {one.name for one in tools}
    assert left(result) == len(tools) - len(listed)
    # A tool that is left out can be found and called.
    assert not left(result) or own[:2] == [RETRIEVE_TOOLS, CALL_TOOL]
    assert list(result.pins_left) == [one.name for one in tools if one.pinned and one.name not in listed]
    assert fitted(tools, budget, most) == result
    assert result.own == set(own)


@given(candidates(), st.integers(SMALLEST, 4000), st.none() | st.integers(3, 40))
@settings(max_examples=30)
def test_what_reads_results_keeps_to_its_share_and_leaves_no_other_tool_to_search(
    tools: list[ListingCandidate], budget: int, most: int | None
) -> None:
    result, without = fitted(tools, budget, most, READING), fitted(tools, budget, most)
    assert result.tokens == tokens(result.listed) <= budget
    assert most is None or len(result.listed) <= most
    readers = [name for name, _ in result.listed if name in NAMES]
    assert readers in ([], list(NAMES))
    assert result.own == {*own_names(result), *readers}
    assert left(without) or not left(result)
    if 4 * tokens(READING.reader_stubs) > budget:
        assert result.levels == without.levels
        assert not readers or set(result.levels.values()) == {DetailLevel.WHOLE}


@given(
    st.lists(
        st.tuples(st.booleans(), st.none() | st.integers(0, 50)), max_size=60, unique_by=lambda one: one[1]
    ),
    st.integers(SMALLEST, 3000),
)
def test_of_tools_of_one_size_those_that_are_pinned_come_first_and_then_those_that_are_used(
    tools: list[tuple[bool, int | None]], budget: int
) -> None:
    made = [
        candidate(f"tool{index:02}", pinned=pinned, rank=rank) for index, (pinned, rank) in enumerate(tools)
    ]
    result = fitted(made, budget)
    pinned = [result.levels[one.name] for one in made if one.pinned]
    used = [
        result.levels[one.name]
        for one in sorted((one for one in made if not one.pinned and one.rank is not None), key=rank_of)
    ]
    others = [result.levels[one.name] for one in made if not one.pinned and one.rank is None]
    for first, second in ((pinned, used), (pinned, others), (used, others)):
        assert not (DetailLevel.NONE in first and set(second) - {DetailLevel.NONE})
    # No tool gets fewer words than one that is used less.
    assert used == sorted(used)


def left(result: FittedListing) -> int:
    return sum(level is DetailLevel.NONE for level in result.levels.values())


def rank_of(one: ListingCandidate) -> int:
    return one.rank if one.rank is not None else 1_000


def test_a_server_that_is_left_to_search_does_not_keep_others_out() -> None:
    tools = [ListingCandidate(f"hidden{number}", "far", (None, None, None)) for number in range(200)]
    tools += [candidate(f"tool{number}", server="near") for number in range(80)]
    result = fitted(tools, 10_000)
    assert all(result.levels[f"tool{number}"] is not DetailLevel.NONE for number in range(80))


def test_tools_that_are_never_whole_do_not_keep_others_from_it() -> None:
    tools = [candidate(f"short{number}", server="far") for number in range(100)]
    tools = [ListingCandidate(one.name, one.server, (None, *one.forms[1:])) for one in tools]
    tools += [candidate(f"tool{number}", server="near") for number in range(10)]
    result = fitted(tools, 10_000)
    assert {result.levels[f"tool{number}"] for number in range(10)} == {DetailLevel.WHOLE}


def test_where_all_can_be_listed_a_few_favourites_do_not_cost_the_others_their_arguments() -> None:
    plain = [candidate(f"tool{number:02}") for number in range(40)]
    used = [msgspec.structs.replace(one, rank=index) for index, one in enumerate(plain[:5])] + plain[5:]
    budget = tokens([(one.name, one.forms[1] or b"") for one in plain]) - 20
    before, after = fitted(plain, budget), fitted(used, budget)
    assert own_names(before) == own_names(after) == [EXPAND_SCHEMA]
    assert left(after) == 0
    slim = [sum(level is DetailLevel.SLIM for level in result.levels.values()) for result in (before, after)]
    assert slim[0] == slim[1] > 0


# What becomes of the gateway's own tools.


def test_when_everything_fits_whole_there_is_no_own_tool() -> None:
    tools = [candidate(f"tool{number}") for number in range(4)]
    result = fitted(tools, SMALLEST)
    assert set(result.levels.values()) == {DetailLevel.WHOLE}
    assert [name for name, _ in result.listed] == [one.name for one in tools]


def test_everything_is_whole_as_soon_as_that_fits_to_the_token() -> None:
    tools = [candidate(f"tool{number}") for number in range(20)]
    exact = tokens([(one.name, one.forms[0] or b"") for one in tools])
    assert fitted(tools, exact).tokens == exact
    assert set(fitted(tools, exact).levels.values()) == {DetailLevel.WHOLE}
    assert DetailLevel.SLIM in fitted(tools, exact - 1).levels.values()


def test_when_everything_fits_in_few_words_only_what_expands_is_added_and_room_is_used() -> None:
    tools = [candidate(f"tool{number}", rank=number) for number in range(10)]
    result = fitted(tools, 900)
    assert own_names(result) == [EXPAND_SCHEMA]
    assert left(result) == 0
    # What is called most is said in full as far as there is room.
    levels = [result.levels[one.name] for one in tools]
    assert levels == sorted(levels)
    assert set(levels) == {DetailLevel.WHOLE, DetailLevel.SLIM}


def test_otherwise_what_finds_and_calls_the_others_comes_first() -> None:
    result = fitted([candidate(f"tool{number}") for number in range(300)], 3000)
    assert [name for name, _ in result.listed][:3] == OWN_TOOLS
    assert dict(result.listed)[CALL_TOOL] == CALL_DEFINITION
    assert left(result)


def test_own_tools_become_stubs_and_then_two_when_they_would_take_more_than_half() -> None:
    tools = [candidate(f"tool{number}", 400) for number in range(300)]
    whole, stubs, two = (tokens(finders) for finders in OWN.finders)
    assert whole > stubs > two
    for budget, finders in ((2 * whole, 0), (2 * whole - 1, 1), (2 * stubs, 1), (2 * stubs - 1, 2), (two, 2)):
        result = fitted(tools, budget)
        assert result.listed[: len(OWN.finders[finders])] == OWN.finders[finders]
        assert result.tokens <= budget


# What becomes of those that read large results.


def whole_tokens(tools: Sequence[ListingCandidate]) -> int:
    return tokens([(one.name, one.forms[0] or b"") for one in tools])


def test_beside_whole_tools_they_are_whole_or_stubs_or_not_there_as_there_is_room() -> None:
    tools = [candidate(f"tool{number}") for number in range(3)]
    forms = [(one.name, one.forms[0] or b"") for one in tools]
    with_whole, with_stubs = (
        tokens([*forms, *readers]) for readers in (READING.readers, READING.reader_stubs)
    )
    assert whole_tokens(tools) < SMALLEST < with_stubs < with_whole
    for budget, readers in (
        (with_whole, READING.readers),
        (with_whole - 1, READING.reader_stubs),
        (with_stubs, READING.reader_stubs),
        (with_stubs - 1, ()),
        (SMALLEST, ()),
    ):
        result = fitted(tools, budget, own=READING)
        # Behind them, as in the mode full.
        assert result.listed == (*forms, *readers)
        assert result.own == {name for name, _ in readers}


def test_a_quarter_of_the_room_is_kept_for_them() -> None:
    tools = [candidate(f"tool{number}") for number in range(10)]
    enough = 4 * tokens(READING.reader_stubs)
    assert whole_tokens(tools) > enough
    for budget, readers in ((enough, list(NAMES)), (enough - 1, [])):
        result = fitted(tools, budget, own=READING)
        # Before the tools of the servers, and behind what expands them.
        assert [name for name, _ in result.listed] == [EXPAND_SCHEMA, *readers, *(one.name for one in tools)]
        assert left(result) == 0
    many = [candidate(f"tool{number}") for number in range(300)]
    for budget, readers in ((enough, list(NAMES)), (enough - 1, [])):
        result = fitted(many, budget, own=READING)
        assert [name for name, _ in result.listed][: 3 + len(readers)] == [*OWN_TOOLS, *readers]
        assert result.own == {*OWN_TOOLS, *readers}


@pytest.mark.parametrize("number", [10, 20])
def test_in_a_small_budget_they_cost_no_tool_its_words(number: int) -> None:
    tools = [candidate(f"tool{one:02}") for one in range(number)]
    result = fitted(tools, 800, own=READING)
    assert result == fitted(tools, 800)
    assert result.own == {EXPAND_SCHEMA}


def test_they_go_before_a_tool_is_left_to_search() -> None:
    tools = [candidate(f"tool{number:02}") for number in range(60)]
    everything = tokens([EXPAND, *((one.name, one.forms[2] or b"") for one in tools)])
    readers = tokens(READING.reader_stubs)
    assert everything > 4 * readers
    with_room = fitted(tools, everything + readers + 5, own=READING)
    assert with_room.own == {EXPAND_SCHEMA, *NAMES}
    result = fitted(tools, everything, own=READING)
    assert result.own == {EXPAND_SCHEMA}
    assert left(result) == left(with_room) == 0


@pytest.mark.parametrize("number", [35, 36, 38, 40])
def test_they_take_no_place_that_a_tool_needs(number: int) -> None:
    tools = [candidate(f"tool{one}", 0) for one in range(number)]
    result = fitted(tools, 1_000_000, most=40, own=READING)
    assert set(result.levels.values()) == {DetailLevel.WHOLE}
    assert result.own == ({*NAMES} if number == 35 else set())


def test_the_smallest_budget_has_room_for_own_tools_and_some_others() -> None:
    result = fitted([candidate(f"tool{number}") for number in range(300)], SMALLEST)
    assert own_names(result)[:2] == [RETRIEVE_TOOLS, CALL_TOOL]
    assert len(result.listed) > 5


# Who is shown, and how.


def test_a_pin_that_does_not_fit_is_left_to_search_and_said() -> None:
    huge = ListingCandidate("huge", "s", (definition("huge", 5000), None, None), pinned=True)
    result = fitted([candidate("small", 300), huge, candidate("other", 300)], SMALLEST)
    assert result.pins_left == ("huge",)
    assert result.levels["huge"] is DetailLevel.NONE
    assert result.levels["small"] is not DetailLevel.NONE


def test_pins_are_shown_in_full_before_what_is_used_most() -> None:
    tools = [candidate(f"tool{number}", rank=number) for number in range(300)]
    tools.append(candidate("pinned", pinned=True))
    result = fitted(tools, 1500)
    assert result.levels["pinned"] is DetailLevel.WHOLE
    # The order is that of the catalog all the same.
    assert result.listed[-1][0] == "pinned"


def test_what_is_used_most_is_whole_and_leaves_room_for_others_to_be_seen() -> None:
    tools = [candidate(f"tool{number:03}", rank=number) for number in range(100)]
    tools += [candidate(f"unused{number:03}") for number in range(100)]
    result = fitted(tools, 3000)
    levels = [result.levels[f"tool{number:03}"] for number in range(100)]
    assert levels[0] is DetailLevel.WHOLE
    assert levels == sorted(levels)
    assert levels.count(DetailLevel.WHOLE) < 20


def test_a_word_of_each_server_comes_before_a_second_of_any() -> None:
    tools = [candidate(f"big{number:03}", server="big") for number in range(500)]
    tools += [candidate(f"small{number}", server=f"server{number}") for number in range(10)]
    result = fitted(tools, 1000)
    assert all(result.levels[f"small{number}"] is not DetailLevel.NONE for number in range(10))


def test_a_tool_that_is_too_large_does_not_keep_smaller_ones_out() -> None:
    tools = [candidate(f"large{number}", 5 * 2000) for number in range(5)]
    tools = [ListingCandidate(one.name, "s", (one.forms[0], None, None)) for one in tools]
    tools += [candidate(f"small{number}") for number in range(5)]
    result = fitted(tools, 1000)
    assert left(result) == 5
    assert all(result.levels[f"small{number}"] is not DetailLevel.NONE for number in range(5))


def test_a_client_that_can_handle_few_tools_is_shown_no_more_however_small_they_are() -> None:
    tools = [candidate(f"tool{number}", 0) for number in range(100)]
    result = fitted(tools, 1_000_000, most=40)
    assert len(result.listed) == 40
    assert own_names(result) == OWN_TOOLS
    assert left(fitted(tools[:40], 1_000_000, most=40)) == 0
    # What expands takes a place, so whole tools in its stead.
    assert own_names(fitted(tools[:40], 1_000_000, most=40)) == []


@pytest.mark.parametrize("name", OWN_TOOLS)
def test_a_tool_that_is_called_like_an_own_one_is_left_to_search_where_that_is_shown(name: str) -> None:
    tools = [candidate(f"tool{number}", pinned=True) for number in range(8)]
    tools.insert(3, candidate(name, pinned=True))
    assert left(fitted(tools, 3000)) == 0
    for budget in (500, 700, 900):
        result = fitted(tools, budget)
        names = [shown for shown, _ in result.listed]
        assert len(names) == len(set(names))
        assert result.levels[name] is DetailLevel.NONE
        assert {RETRIEVE_TOOLS, CALL_TOOL} <= set(names)


def test_what_is_far_too_large_is_not_counted_to_its_end() -> None:
    counted: list[int] = []

    def count(text: bytes) -> int:
        counted.append(len(text))
        return count_tokens(text)

    tools = [candidate("huge", 150_000), candidate("small"), candidate("large", 2_000)]
    result = fit_to_budget(tools, OWN, 1000, ListingTokenMeter(count, enough=1000))
    assert result.levels["huge"] is DetailLevel.STUB
    assert result.levels["small"] is not DetailLevel.NONE
    assert max(counted) < 50_000
    assert result == fit_to_budget(tools, OWN, 1000, ListingTokenMeter(count_tokens))


def test_only_forms_that_may_be_shown_are_put_into_the_dialect() -> None:
    asked: list[bytes] = []

    def serve(form: bytes) -> bytes:
        asked.append(form)
        return form.replace(b"word", b"WORD")

    tools = [candidate(f"tool{number}", 50) for number in range(2000)]
    result = fit_to_budget(tools, OWN, 1000, ListingTokenMeter(count_tokens), serve=serve)
    assert result.tokens == tokens(result.listed) <= 1000
    assert len(set(asked)) < 400


# The real servers.


@cache
def real_views() -> ListingBuilder:
    """Of all real tools; what they are in few words is worked out once."""
    return ListingBuilder(real_catalog(), count_tokens, budget_tokens=20_000, page_bytes=1 << 18, ranks=dict)


def built(budget: int, mode: ListingMode = ListingMode.BUDGET, most: int | None = None) -> BuiltListing:
    views = real_views()
    views.budget_tokens = budget
    return views.build(
        ListingFormat(mode, era=Era.HANDSHAKE, most=most),
        real_catalog().visible(PLAIN_PROFILE),
        real_catalog().servers(),
    )


@pytest.mark.parametrize("budget", [500, 501, 700, 1000, 3000, 20_000])
def test_3250_real_tools_fit_any_budget_to_the_token(budget: int) -> None:
    view = built(budget)
    assert view.tokens == tokens(view.listing.items) <= budget
    # Not much is left unused.
    assert view.tokens >= 0.95 * budget
    assert sum(view.levels.values()) == len(real_catalog())
    assert [name for name, _ in view.listing.items[:2]] == [RETRIEVE_TOOLS, CALL_TOOL]
    names = {item.public_name: index for index, item in enumerate(real_catalog().visible(PLAIN_PROFILE))}
    order = [names[name] for name, _ in view.listing.items if name in names]
    assert order == sorted(order)


@pytest.mark.parametrize("most", [40, 100, 128])
def test_real_tools_fit_what_a_client_can_handle(most: int) -> None:
    view = built(20_000, ListingMode.AUTO, most)
    assert len(view.listing.items) == most
    assert view.mode is ListingMode.BUDGET


def test_each_real_server_is_shown_whole_as_soon_as_it_fits_to_the_token() -> None:
    for server, tools in list(real_servers().items())[::16]:
        catalog = catalog_of(server)
        stage = ListingFixture(ListingMode.AUTO, {server: tools}, catalog=catalog)
        items = stage.catalog.visible(PLAIN_PROFILE)
        exact = tokens([(item.public_name, item.definition) for item in items])
        for budget, mode in (
            (exact, {ListingMode.FULL}),
            (exact - 1, {ListingMode.SLIM, ListingMode.BUDGET}),
        ):
            if budget >= SMALLEST:
                views = ListingBuilder(
                    catalog, count_tokens, budget_tokens=budget, page_bytes=1 << 18, ranks=dict
                )
                assert views.build(ListingFormat(ListingMode.AUTO), items, (server,)).mode in mode
