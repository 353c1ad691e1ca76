"""Large results: the model reads that it sees a part, and gets the rest by the cache_id that it reads."""

import pytest

from testkit.sdk_servers import shop
from tests.model_view.agents import AGENTS, OPENAI_AGENTS_STRUCTURED, Agent
from tests.model_view.gateway import LAST_LINE, TEST_SECONDS, Site
from tests.model_view.model import ModelView, Step, cache_id_in

pytestmark = pytest.mark.timeout(TEST_SECONDS)
LIMIT = 8000
LAST_PERSON = f"user{shop.LARGE - 1}"
# What stands at the end of each large result.
ENDS = {
    "people_open": LAST_PERSON,
    "people_closed": LAST_PERSON,
    "people_loose": LAST_PERSON,
    "log": f"request {shop.LARGE - 1}",
    "file": LAST_LINE,
}


def search(label: str) -> Step:
    """Find the end of a result that was shown in part."""
    return Step(
        f"search {label}",
        "proxy_search",
        lambda read: {"cache_id": cache_id_in(read[label]), "pattern": ENDS[label]},
    )


def read_on(label: str) -> Step:
    """Read the end of a result that was shown in part."""
    return Step(
        f"read {label}",
        "proxy_read",
        lambda read: {"cache_id": cache_id_in(read[label]), "unit": "characters", "offset": -200},
    )


def steps(book: str) -> list[Step]:
    calls = [Step(label, f"shop_{label}") for label in ENDS if label != "file"]
    calls.append(Step("file", "files_read_text_file", {"path": book}))
    return [step for call in calls for step in (call, search(call.label), read_on(call.label))]


@pytest.fixture(scope="module", params=[*AGENTS, OPENAI_AGENTS_STRUCTURED], ids=str)
def agent(request: pytest.FixtureRequest) -> Agent:
    chosen: Agent = request.param
    return chosen


@pytest.fixture(scope="module")
def view(agent: Agent, site: Site) -> ModelView:
    return site.talk(agent, steps(site.book), "full")


@pytest.mark.parametrize("label", ENDS)
def test_the_model_reads_that_it_sees_a_part(view: ModelView, label: str) -> None:
    read = view.results[label]
    assert len(read) < LIMIT
    assert ENDS[label] not in read
    assert "Excerpt" in read
    assert "cache_id" in read
    # It names what reads the rest.
    assert "proxy_read" in read


@pytest.mark.parametrize("label", ENDS)
def test_the_notice_is_read_once(view: ModelView, label: str) -> None:
    read = view.results[label]
    assert read.count("Excerpt") == 1
    # Once in the sentence, and once more where the structure has a member of its own for it.
    assert 1 <= read.count(cache_id_in(read)) <= 2


@pytest.mark.parametrize("label", ENDS)
def test_the_cache_id_that_the_model_reads_leads_to_the_rest(view: ModelView, label: str) -> None:
    assert ENDS[label] in view.results[f"search {label}"]
    assert ENDS[label] in view.results[f"read {label}"]


def test_structure_that_admits_another_member_begins_with_the_notice(agent: Agent, view: ModelView) -> None:
    begins = '{"_headgate":' in view.results["people_open"].replace(" ", "")[:100]
    assert begins == (agent.shows == "structure")


def test_structure_that_admits_no_further_member_gives_way_to_the_text(view: ModelView) -> None:
    # The schema of the server of files is closed too.
    for label in ("people_closed", "people_loose", "log", "file"):
        assert "_headgate" not in view.results[label], label
