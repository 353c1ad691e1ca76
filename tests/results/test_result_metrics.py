"""What was kept out of conversations is counted, and nothing twice."""

from headgate.results.jobs import JobResult
from headgate.results.large_results import ResultMetrics
from headgate.results.reply import reply_size

LOOKED = JobResult(original_size=40_000, processed_size=4000, original_tokens=10_000, processed_tokens=1000)


def test_what_an_excerpt_leaves_out_is_saved() -> None:
    savings = ResultMetrics()
    savings.count_excerpt(LOOKED)
    assert (savings.excerpts, savings.saved_tokens) == (1, 9000)


def test_what_is_read_of_it_later_is_spent_again() -> None:
    savings = ResultMetrics()
    savings.count_excerpt(LOOKED)
    savings.count_read("proxy_read", LOOKED, fresh=False)
    assert savings.saved_tokens == 8000
    savings.count_read("proxy_read", JobResult(original_tokens=10_000, processed_tokens=20_000), fresh=False)
    # A client that reads all of it has saved nothing, and the saving is never negative.
    assert savings.saved_tokens == 0


def test_a_fresh_result_would_have_been_shown_whole() -> None:
    savings = ResultMetrics()
    savings.count_read("proxy_search", LOOKED, fresh=True)
    assert savings.saved_tokens == 9000


def test_the_counters_tell_each_tool_apart() -> None:
    savings = ResultMetrics()
    for tool in ("proxy_read", "proxy_read", "proxy_query"):
        savings.count_read(tool, JobResult(original_size=10, processed_size=4), fresh=False)
    savings.refused += 1
    assert savings.counters() == {
        ("results_excerpted", ""): 0,
        ("result_reads_refused", ""): 1,
        ("result_characters_received", ""): 0,
        ("result_characters_shown", ""): 12,
        ("result_reads", '{tool="proxy_read"}'): 2,
        ("result_reads", '{tool="proxy_query"}'): 1,
    }


def test_notices_count_and_what_is_said_twice_counts_once() -> None:
    text, notice = b"word " * 100, b"[Excerpt: some words.]"
    assert reply_size([text, notice], None)[0] == 522
    assert reply_size([text, notice], text)[0] == 522
    assert reply_size([notice], text) == reply_size([text], None)
    assert reply_size([text, notice], None)[1] > reply_size([text], None)[1]
