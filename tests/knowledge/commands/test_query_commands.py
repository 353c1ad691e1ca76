"""What the tools say to models is said to people with the commands and options that they have."""

import pytest

from headgate.knowledge.commands.answer_tables import in_command_terms
from headgate.knowledge.errors import EntityMatch, VendorAmbiguous
from headgate.knowledge.search.query import SearchStrategy, route_query
from headgate.knowledge.search.ranking import min_score_notice
from headgate.search.rank_fusion import ReciprocalRankFusion


@pytest.mark.parametrize(
    ("tools", "commands"),
    [
        (
            "filters.date_from 2026-02-01 is after date_to 2026-01-01",
            "--since 2026-02-01 is after --until 2026-01-01",
        ),
        ("filters.doc_type must be a text, not 5", "--type must be a text, not 5"),
        ("vendor_name is missing", "NAME is missing"),
        ("No document has source_category 'fin'", "No document has the category 'fin'"),
        ("see list_sources for what there is", "see headgate knowledge sources for what there is"),
        ("page_size 4 fits, or response_mode 'preview'", "--limit 4 fits, or --mode preview"),
        ("cursor is not one that this server gave", "--cursor is not one that an answer ended with"),
        (
            "cursor belongs to semantic_search, not to find_vendor_info",
            "--cursor belongs to headgate knowledge search, not to headgate knowledge vendor",
        ),
        ("Use strategy 'bm25' or 'hybrid', or wait", "Use --strategy bm25 or hybrid, or wait"),
        ("the cursor of the page before", "the cursor of the page before"),
        ("No document has the file name 'doc_type'", "No document has the file name 'doc_type'"),
    ],
)
def test_arguments_are_options_here(tools: str, commands: str) -> None:
    assert in_command_terms(tools) == commands


@pytest.mark.parametrize(
    "quoted", ["'list_sources'", "'the O'Brien list_sources'", '"it\'s page_size 4"', r"'a\'s list_sources'"]
)
def test_what_somebody_else_said_stays_as_it_is(quoted: str) -> None:
    said = f"Vendor {quoted} isn't there; see list_sources, or the team's page_size 4"
    assert in_command_terms(said) == (
        f"Vendor {quoted} isn't there; see headgate knowledge sources, or the team's --limit 4"
    )


def test_no_argument_of_a_tool_is_left_in_what_a_search_or_a_vendor_says() -> None:
    high = min_score_notice(0.5, SearchStrategy.HYBRID, ReciprocalRankFusion(), None, [])
    assert high is not None
    said = [
        VendorAmbiguous(
            "Quarry", [EntityMatch(2, "Quarry Data", "VENDOR"), EntityMatch(4, "Quarry", "VENDOR")]
        ).message,
        high.message,
        high.suggestion,
        route_query("invoice 4711").notice.suggestion,
    ]
    found = [in_command_terms(one) for one in said]
    assert found[0].endswith("Call again with the id of the one that is meant as NAME, such as 'id 2'.")
    assert found[1].startswith("No result can reach --min-score 0.5: --strategy hybrid gives at most")
    assert found[2].startswith("Use a --min-score up to")
    assert found[2].endswith("or --strategy vector or bm25, which give up to 1.")
    assert found[3] == "Give a --strategy other than 'auto' to choose it yourself."
