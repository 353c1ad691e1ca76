"""What the tools of one server repeat is found, whatever their order, and said once."""

from headgate.catalog.tool_forms import NOTHING_SHARED, find_shared_text
from tests.schema.reduction.tool_samples import LONG, a_tool, arguments, described
from tests.schema.slim_forms import slim_tool

COSTS = "Every call of this costs money"
EXTRA = ("tenant", "retries", "delay", "mode")
PLACE = {"type": "string", "description": "Where it is to be done (e.g. Paris, Lyon)"}


def tools(count: int = 10) -> list[bytes]:
    """So many tools that repeat themselves."""
    return [
        a_tool(
            f"{COSTS}. Does the thing with number {number}.",
            {f"own_{number}": LONG, "place": PLACE, **dict.fromkeys(EXTRA, LONG)},
            f"own_{number}",
            "place",
        )
        for number in range(count)
    ]


def test_a_sentence_and_arguments_that_recur_are_said_once() -> None:
    assert find_shared_text(tools()).summary == (
        f"Most tools also take delay, mode, retries, tenant. Of many tools: {COSTS}."
    )


def test_what_is_said_once_leaves_room_for_what_is_the_tools_own() -> None:
    form = slim_tool(tools()[3], find_shared_text(tools()))
    # Examples that all of them give do not tell one apart either. The arguments are named all the same,
    # because not every client shows what is said once.
    assert described(form) == "Does thing with number 3"
    assert [name for name, one in arguments(form).items() if one] == ["own_3", "place"]
    assert {"own_3", "place", "delay", "mode", "retries", "tenant"} <= arguments(form).keys()


def test_the_order_of_tools_does_not_matter() -> None:
    assert find_shared_text(tools()) == find_shared_text(tools()[::-1])


def test_few_tools_and_tools_that_differ_share_nothing() -> None:
    assert find_shared_text(tools(3)) == NOTHING_SHARED
    differ = [a_tool(f"Does thing number {n}", {f"own_{n}": {"type": "string"}}) for n in range(20)]
    assert find_shared_text(differ) == NOTHING_SHARED
    assert find_shared_text([]) == NOTHING_SHARED
    assert NOTHING_SHARED.summary == ""


def test_an_argument_that_is_needed_or_one_of_few_is_not_shared() -> None:
    needed = [a_tool("", dict.fromkeys(EXTRA, LONG) | {f"own_{n}": LONG}, *EXTRA) for n in range(10)]
    few = [a_tool("", {"command": LONG, f"own_{n}": LONG}) for n in range(10)]
    assert find_shared_text(needed).arguments == find_shared_text(few).arguments == ()


def test_a_sentence_of_some_tools_is_not_said_of_all() -> None:
    some = [a_tool(f"{COSTS if n < 20 else 'Does it'}. Then {n} it is.") for n in range(100)]
    assert COSTS in find_shared_text(some).repeated
    assert COSTS not in find_shared_text(some).summary


def test_what_is_said_is_short_and_made_of_whole_sentences() -> None:
    sentences = [f"Sentence {n} " + "is long " * 12 for n in range(10)]
    wordy = [a_tool(". ".join(sentences), {f"long_{'x' * 25}_{n}": LONG for n in range(20)})] * 10
    said = find_shared_text(wordy).summary
    assert 0 < len(said) <= 400
    assert said.endswith(".")
    assert "…" not in said
    assert all(name in said for name in find_shared_text(wordy).arguments)


def test_what_takes_long_to_read_is_passed_over() -> None:
    large = [one.replace(b"nobody needs", b"nobody needs " + b"x" * 256 * 1024) for one in tools(20)]
    assert find_shared_text([*tools(), *large]).arguments == ()
    assert find_shared_text(tools(30)).arguments != ()


def test_what_cannot_be_read_is_passed_over() -> None:
    odd = [b"", b"null", b"[]", b'{"name":1}', b'{"name":"a","inputSchema":3,"description":[]}']
    assert find_shared_text([*tools(), *odd]).summary == find_shared_text([*odd, *tools()]).summary != ""
    assert find_shared_text(odd) == NOTHING_SHARED
