"""What an answer shows beside its hits: the other order, further pages, times, probabilities."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import expect

from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration
from benchmarks.service.page_answers import refuse
from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import PageOf, asked, ids_of

pytestmark = pytest.mark.browser

WORDS = "a yellow circle left of a striped triangle"


def test_matching_alone_beside_two_stage(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    page.show_details()
    with page.answer_shown():
        page.compare()
    expect(page.matching_hits).to_have_count(24)

    both, alone = asked(api, text=WORDS), asked(api, text=WORDS, rerank=False)
    after = {hit["id"]: hit["rank"] for hit in both["hits"]}
    before = {hit["id"]: hit["rank"] for hit in alone["hits"]}
    moves = [hit["stages"]["match"]["rank"] - hit["rank"] for hit in both["hits"]]
    assert any(moves)  # otherwise there is nothing to see
    assert after.keys() != before.keys()
    assert page.ids() == list(after)
    assert data_of(page.hits.locator(".moved"), "moved") == [str(places) for places in moves]
    assert data_of(page.matching_hits, "id") == list(before)
    assert data_of(page.matching_hits.locator(".moved"), "moved") == [
        str(rank - after[item_id]) if item_id in after else "0" for item_id, rank in before.items()
    ]
    for hits, marked, expected in (
        (page.hits, ".entered", after.keys() - before.keys()),
        (page.matching_hits, ".left", before.keys() - after.keys()),
    ):
        assert set(data_of(hits.filter(has=page.page.locator(marked)), "id")) == expected

    page.page.locator("#more").scroll_into_view_if_needed()  # both rankings go on
    page.expect_hits(ids_of(asked(api, text=WORDS, k=48)))
    alone = asked(api, text=WORDS, k=48, rerank=False)
    assert data_of(page.matching_hits, "id") == ids_of(alone)
    expect(page.status).to_contain_text("to the first 48.")
    with page.answer_shown():
        page.page.locator("#compare").uncheck()
    expect(page.page.locator("#matching-column")).to_be_hidden()
    expect(page.page.locator(".moved")).to_have_count(0)


def test_further_hits_follow_at_the_end_however_often_they_do_not_come(
    page: SearchPage, api: httpx.Client
) -> None:
    whole = ids_of(asked(api, text=WORDS, k=64))
    page.open().find(WORDS)
    page.page.route("**/v1/search/**", refuse(429, "overloaded"), times=1)
    more = page.page.locator("#more")
    more.scroll_into_view_if_needed()
    page.complaints.expect("status of 429")
    again = more.get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    assert page.ids() == whole[:24]
    again.click()
    page.expect_hits(whole[:48])
    more.scroll_into_view_if_needed()
    page.expect_hits(whole)
    expect(page.status).to_contain_text("64 photos shown")
    expect(more).to_be_hidden()
    assert data_of(page.hits, "rank") == [str(rank) for rank in range(1, 65)]


def test_further_hits_by_keyboard(page: SearchPage, api: httpx.Client) -> None:
    page.page.add_init_script(
        "window.IntersectionObserver = class { observe() {} disconnect() {} };"
    )
    page.open().find(WORDS)
    page.page.get_by_role("button", name="Show more").focus()
    page.page.keyboard.press("Enter")
    page.expect_hits(ids_of(asked(api, text=WORDS, k=48)))
    expect(page.hits.nth(24).locator(".open")).to_be_focused()


def test_times_and_probabilities_are_those_of_the_answer(page: SearchPage) -> None:
    answer = page.open().find(WORDS)
    timings = page.page.locator("#timings")
    expect(timings).to_be_hidden()  # for those who ask for it
    page.show_details()
    expect(timings).to_be_visible()
    shown = [float(ms) for ms in data_of(timings.locator("li[data-ms]"), "ms")]
    took_ms: dict[str, Any] = answer["took_ms"]
    assert shown[:-1] == [took_ms[stage] for stage in ("decode", "encode", "retrieve", "rerank")]
    assert sum(shown) == pytest.approx(took_ms["total"])  # the last is what is between them

    probabilities = [hit["probability"] for hit in answer["hits"]]
    assert all(0 < each < 1 for each in probabilities)
    each = page.hits.locator(".probability")
    assert [float(one) for one in data_of(each, "probability")] == probabilities
    read = [int(text.split(" %")[0]) for text in each.all_text_contents()]
    assert read == pytest.approx([100 * one for one in probabilities], abs=0.501)


def test_whether_anything_matches(page: SearchPage) -> None:
    notice = page.page.locator("#no-match")
    answer = page.open().find("a")
    assert (answer["no_match"], len(answer["hits"])) == (True, 24)  # the nearest are shown
    expect(notice).to_be_visible()
    expect(notice).to_have_role("status")  # it is read out
    assert page.find(WORDS)["no_match"] is False
    expect(notice).to_be_hidden()


def test_only_what_is_likely(page: SearchPage, api: httpx.Client) -> None:
    hits = asked(api, text=WORDS)["hits"]
    least = median(hit["probability"] for hit in hits)
    likely = [hit["id"] for hit in hits if hit["probability"] >= least]
    assert 0 < len(likely) < len(hits)
    page.open(urlencode({"text": WORDS, "min_probability": least}))
    page.expect_hits(likely)
    page.show_details().page.locator("#options-toggle").click()
    with page.answer_shown():
        page.page.locator("#option-min-probability").fill("0.95")
    assert page.ids() == ids_of(asked(api, text=WORDS, min_probability=0.95))


def test_a_calibration_of_other_photos_shows_no_probability(
    page_of: PageOf,
    index_folder: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    made = make_calibration(describe(index).model.id)
    store_calibration(index, replace(made, other_photos=True))
    with page_of(index=index) as page:
        page.open(urlencode({"text": WORDS, "min_probability": 0.95}))
        expect(page.hits).to_have_count(24)
        expect(page.hits.locator(".probability")).to_have_count(0)
        expect(page.page.locator("#no-match")).to_be_hidden()
        expect(page.page.locator("#found")).not_to_contain_class("no-match")
        expect(page.status).to_contain_text("so no hit was hidden")
        page.expect_photos()  # before the service stops
