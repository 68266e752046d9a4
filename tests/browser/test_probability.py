"""How likely a hit is right, and whether anything is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import expect

from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration
from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import OpenPage, OpenService

pytestmark = pytest.mark.browser

WORDS = "a huge yellow square below a tiny red circle"


def test_each_hit_tells_its_probability(page: SearchPage) -> None:
    hits = page.open().find(WORDS)["hits"]

    shown = page.hits.locator(".probability")
    probabilities = [hit["probability"] for hit in hits]
    assert all(0 < each < 1 for each in probabilities)
    assert [float(each) for each in data_of(shown, "probability")] == probabilities
    read = [text.split(" %")[0] for text in shown.all_text_contents()]
    assert [int(percent) for percent in read] == pytest.approx(
        [100 * each for each in probabilities], abs=0.501
    )


def test_whether_anything_matches(page: SearchPage) -> None:
    notice = page.page.locator("#no-match")

    answer = page.open().find("a")
    assert answer["no_match"] is True
    expect(notice).to_be_visible()
    expect(notice).to_have_role("status")  # it is read out
    assert len(answer["hits"]) == 24  # the nearest are shown all the same

    answer = page.find(WORDS)
    assert answer["no_match"] is False
    expect(notice).to_be_hidden()


def test_a_calibration_of_other_photos_shows_no_probability(
    open_page: OpenPage,
    open_service: OpenService,
    index_folder: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    made = make_calibration(describe(index).model.id)
    store_calibration(index, replace(made, other_photos=True))
    with open_service(index=index) as url:
        page = open_page(url)
        page.open(urlencode({"text": WORDS, "min_probability": 0.95}))
        expect(page.hits).to_have_count(24)
        expect(page.hits.locator(".probability")).to_have_count(0)
        expect(page.page.locator("#no-match")).to_be_hidden()
        expect(page.page.locator("#found")).not_to_contain_class("no-match")
        expect(page.page.locator("#status")).to_contain_text("so no hit was hidden")
        page.expect_photos()  # before the service stops


def test_only_what_is_likely(page: SearchPage, api: httpx.Client) -> None:
    body = {"text": WORDS, "k": 24}
    hits = api.post("/v1/search/images", json=body).json()["hits"]
    least = median(hit["probability"] for hit in hits)
    likely = [hit["id"] for hit in hits if hit["probability"] >= least]
    assert 0 < len(likely) < len(hits)

    page.open(urlencode({"text": WORDS, "min_probability": least}))

    page.expect_hits(likely)


def test_the_least_probability_is_chosen(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    page.show_details().page.locator("#options-toggle").click()

    with page.answer_shown():
        page.page.locator("#option-min-probability").fill("0.95")

    body = {"text": WORDS, "k": 24, "min_probability": 0.95}
    likely = api.post("/v1/search/images", json=body).json()
    assert page.ids() == [hit["id"] for hit in likely["hits"]]
    assert all(hit["probability"] >= 0.95 for hit in likely["hits"])
