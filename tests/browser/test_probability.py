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
from aladin_network.calibration.sets import PredictionSets
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
    expect(notice).to_contain_text(f"{100 * answer['match_probability']:.0f} %")
    expect(notice).to_have_role("status")  # it is read out
    assert len(answer["hits"]) == 24  # the nearest are shown all the same

    answer = page.find(WORDS)
    assert answer["no_match"] is False
    expect(notice).to_be_hidden()


def test_nothing_is_said_on_the_word_of_a_weak_calibration(
    open_page: OpenPage,
    open_service: OpenService,
    index_folder: Path,
    tmp_path: Path,
    make_calibration: Callable[..., Calibration],
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    store_calibration(index, make_calibration(describe(index).model_id, auroc=0.66))
    with open_service(index=index) as url:
        page = open_page(url)
        page.open(urlencode({"text": WORDS, "min_probability": 0.95}))
        expect(page.hits).to_have_count(24)
        expect(page.hits.locator(".probability")).to_have_count(0)
        expect(page.page.locator("#no-match")).to_be_hidden()
        expect(page.page.locator("#found")).not_to_contain_class("no-match")
        expect(page.page.locator("#status")).to_contain_text("so no hit was hidden")
        page.page.goto(f"{url}/state")
        told = page.page.locator("#calibration-body")
        expect(told).to_contain_text("1 to 30 tokens")
        expect(told).to_contain_text("no probability is shown")
        expect(told.locator(".chart")).to_have_count(2)
        expect(told).not_to_contain_text("Queries without a match")


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


def with_sets(index: Path, items: int, least: float) -> None:
    """Give an index prediction sets of photos, the same for confidences up to 85 %.

    Args:
        index: Index to change.
        items: Number of items that the calibration is said to have searched.
        least: Least probability of a set's photos, which are of the first stage's best 100.
    """
    calibration = describe(index).calibration
    assert calibration is not None
    calibration = replace(calibration, pool=100)
    models = calibration.text_to_image
    sets = PredictionSets(items=items, least=[least] * 36)
    models = replace(models, aligned=replace(models.aligned, sets=sets))
    store_calibration(index, replace(calibration, text_to_image=models))


def test_a_set_holds_a_right_hit_in_a_share_of_the_searches(
    open_page: OpenPage, open_service: OpenService, index_folder: Path, tmp_path: Path
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    with_sets(index, 10_000, 0.0)
    with open_service(index=index) as url:
        body = {"text": WORDS, "k": 100}
        hits = httpx.post(f"{url}/v1/search/images", json=body, timeout=30).json()["hits"]
    probabilities = sorted({hit["probability"] for hit in hits})
    # Between two of them, and below more than the page loads at a time.
    least = sum(probabilities[-31:-29]) / 2
    of_set = [hit["id"] for hit in hits if hit["probability"] > least]
    assert 24 < len(of_set) < 100
    with_sets(index, 10_000, least)
    with open_service(index=index) as url:
        page = open_page(url)
        page.open().find(WORDS)
        page.show_details().page.locator("#options-toggle").click()
        confidence = page.page.locator("#option-confidence")
        slider = page.page.locator("#option-min-probability")

        with page.answer_shown() as answer:
            confidence.select_option("0.8")
        assert [hit["id"] for hit in answer["hits"]] == of_set
        status = page.page.locator("#status")
        expect(status).to_contain_text(f"{len(of_set)} photos shown")
        expect(status).to_contain_text("among them in 80 % of the searches")
        expect(slider).to_be_disabled()

        with page.answer_shown():
            confidence.select_option("")
        expect(page.hits).to_have_count(24)
        expect(slider).to_be_enabled()

        page.open(urlencode({"text": WORDS, "confidence": 0.75}))  # a shared search
        page.expect_hits(of_set)
        expect(confidence).to_have_value("0.75")

        page.open(urlencode({"text": WORDS, "confidence": 0.9}))
        expect(page.error).to_contain_text("expected at most 0.85")
        page.complaints.expect("status of 422")


def test_without_a_set_no_hit_is_left_out(
    open_page: OpenPage, open_service: OpenService, index_folder: Path, tmp_path: Path
) -> None:
    index = Path(shutil.copytree(index_folder, tmp_path / "index"))
    with_sets(index, 10, 0.99)  # this index has many more items
    with open_service(index=index) as url:
        page = open_page(url)
        page.open(urlencode({"text": WORDS, "confidence": 0.8}))
        expect(page.page.locator("#status")).to_contain_text("no hit was left out")
        expect(page.hits).to_have_count(64)  # all of them
        page.open_state()  # no photo is asked for when the service ends
