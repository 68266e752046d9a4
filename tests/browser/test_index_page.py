"""The page /state in Chromium: what it shows is what the service tells."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from aladin_service.keys_file import add_key
from benchmarks.service.search_page import SearchPage

pytestmark = pytest.mark.browser

OpenService = Callable[..., AbstractContextManager[str]]
OpenPage = Callable[..., SearchPage]

LOOKS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


@pytest.mark.parametrize("look", LOOKS)
def test_it_shows_what_the_service_tells(
    open_page: OpenPage, url: str, api: httpx.Client, look: str
) -> None:
    api.post("/v1/search/images", json={"text": "a red star"})
    state = api.get("/v1/index/state").json()
    # What the page's policy forbids of axe is no fault of the page.
    page = open_page(url, bypass_csp=True, **LOOKS[look]).page
    page.goto(f"{url}/state")
    expect(page.locator("#status")).to_contain_text(f"Generation {state['generation']}")
    for target, tile in (("images", 0), ("texts", 1)):
        live = f"{state[target]['counts']['live']:,}"
        expect(page.locator(".tile .value").nth(tile)).to_have_text(live)
    expect(page.locator("#history tbody tr")).to_have_count(len(state["generations"]))
    expect(page.locator("#engine")).to_be_hidden()
    expect(page.locator("#slow-body tbody tr").first).to_be_visible()
    expect(page.locator("#calibration-body .chart")).to_have_count(2)
    width = "document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(width) <= 0
    report = Axe().run(page)
    assert report.violations_count == 0, report.generate_report()


def test_what_was_left_out_is_turned_page_by_page(
    page: SearchPage, url: str, api: httpx.Client
) -> None:
    state = api.get("/v1/index/state").json()
    items = [{"id": f"text {number}", "reason": "blank"} for number in range(50)]

    def answer(route: Any) -> None:
        asked = parse_qs(urlsplit(route.request.url).query)
        offset, limit = int(asked["offset"][0]), int(asked["limit"][0])
        shown = {"total": len(items), "offset": offset, "items": items[offset : offset + limit]}
        left_out = state["texts"]["left_out"] | shown
        route.fulfill(json=state | {"texts": state["texts"] | {"left_out": left_out}})

    page.page.route("**/v1/index/state*", answer)
    page.page.goto(f"{url}/state")
    texts = page.page.locator("#left-out-body > div").last  # after the photos
    ids = texts.locator("tbody code")
    expect(ids).to_have_text([item["id"] for item in items[:20]])
    page.page.get_by_role("button", name="Next").click()
    expect(ids).to_have_text([item["id"] for item in items[20:40]])
    expect(page.page.get_by_role("button", name="Next")).to_be_focused()
    expect(texts.locator("nav")).to_contain_text("21 to 40 of 50")


def test_a_chart_is_read_with_the_arrow_keys(page: SearchPage, url: str, api: httpx.Client) -> None:
    state = api.get("/v1/index/state").json()
    curve = [(10, 0.85), (20, 0.984), (24, 0.992), (100, 1.0)]
    state["images"]["tuning"] = {
        "candidates": 24,
        "fidelity": 0.992,
        "fidelity_wanted": 0.99,
        "at": 10,
        "queries": 200,
        "curve": [
            {"candidates": candidates, "fidelity": fidelity, "search_ms": 0.125}
            for candidates, fidelity in curve
        ],
    }
    page.page.route("**/v1/index/state*", lambda route: route.fulfill(json=state))
    page.page.goto(f"{url}/state")
    chart = page.page.locator("#curves-body .chart")
    expect(chart.locator(".dot")).to_have_count(4)
    readout = chart.locator(".readout")
    expect(readout).to_have_text("24 candidates keep 99.2 %, 0.13 ms · chosen")
    chart.locator(".dot[tabindex='0']").focus()
    for key, words in (("ArrowRight", "100 "), ("ArrowRight", "100 "), ("Home", "10 ")):
        page.page.keyboard.press(key)
        expect(readout).to_contain_text(f"{words}candidates keep")
        expect(chart.locator(".dot[tabindex='0']")).to_be_focused()
    chart.locator("summary").click()
    expect(chart.locator("tbody th")).to_have_text(["10", "20", "24", "100"])
    expect(chart.locator("tr.marked")).to_contain_text("99.20 %")


def test_quality_is_drawn_by_candidates_and_by_time(
    page: SearchPage, url: str, api: httpx.Client
) -> None:
    state = api.get("/v1/index/state").json()
    state["evaluations"] = [_evaluation([(1, 50.0, 0.5), (24, 56.5, 2.0), (64, 57.25, 8.0)])]
    page.page.route("**/v1/index/state*", lambda route: route.fulfill(json=state))
    page.page.goto(f"{url}/state")

    recall, rsum = page.page.locator("#quality-body .chart").all()
    readout = recall.locator(".readout")
    expect(readout).to_have_text(
        "text to photo: 24 candidates reach 56.5 % (55.5 % to 57.5 %), 2.0 ms · default"
    )
    expect(rsum.locator(".dot")).to_have_count(6)
    # Matching alone is the same by both rules: one line.
    expect(rsum.locator(".level")).to_have_count(3)
    heights = [float(line.get_attribute("y1") or "") for line in recall.locator(".level").all()]
    dots = recall.locator(".dot circle:last-child")
    ends = [float(dots.nth(place).get_attribute("cy") or "") for place in (0, 4, 1, 5)]
    assert sorted(heights) == pytest.approx(sorted(ends))

    page.page.get_by_label("By search time").check()
    expect(readout).to_contain_text("56.5 % (55.5 % to 57.5 %) in 2.0 ms, 24 candidates")
    page.page.get_by_text("Both charts as a table").click()
    row = page.page.locator("#quality-body details tr.marked")
    expect(row).to_contain_text("339.0 (338.0 to 340.0)")


def test_of_an_index_in_an_engine_it_offers_nothing_that_needs_files(
    page: SearchPage, url: str, api: httpx.Client
) -> None:
    state = api.get("/v1/index/state").json()
    state |= {"engine": "milvus", "live_since": None, "evaluations": []}
    earlier = state["generations"][0] | {"standing": "earlier", "generation": 0}
    state["generations"] = [state["generations"][0], earlier]
    for generation in state["generations"]:
        generation |= {"published_at": None, "bytes": None}
    for target in ("images", "texts"):
        state[target]["counts"] |= {"added": None, "deleted": None}
        state[target]["left_out"] |= {"items": [], "total": 31}
        state[target]["ann"] |= {"factory": "milvus flat", "curve": []}
    page.page.route("**/v1/index/state*", lambda route: route.fulfill(json=state))
    page.page.goto(f"{url}/state")

    expect(page.page.locator("#engine")).to_contain_text(
        "This index is stored in the vector database milvus."
    )
    tiles = page.page.locator(".tile")
    expect(tiles.nth(0)).to_contain_text("pushed to the vector database")
    expect(tiles.nth(2)).to_contain_text("1 other generation kept")
    expect(tiles.nth(2)).not_to_contain_text("rejected")
    expect(page.page.locator("#history tbody tr")).to_have_count(2)
    expect(page.page.locator("#history caption")).to_have_text("Generations in the vector database")
    expect(page.page.locator("#left-out nav")).to_have_count(0)
    expect(page.page.locator("#left-out")).to_contain_text("31 texts skipped")
    shown = page.page.locator("#state").inner_text()
    assert "rollback" not in shown
    assert "The search is exhaustive" not in shown
    assert "stores the result here" not in shown


def _evaluation(curve: list[tuple[int, float, float]]) -> dict[str, Any]:
    """Make what is kept of an evaluation whose curve has these candidates, recalls and times."""

    def estimate(value: float) -> dict[str, float]:
        return {"value": value, "low": value - 1, "high": value + 1}

    def side(recall: float) -> dict[str, Any]:
        return {"r1": estimate(recall), "r1_gain": estimate(recall - 50), "agreement": 90.0}

    def quality(recall: float) -> dict[str, Any]:
        return {
            "text_to_image": side(recall),
            "image_to_text": side(recall + 10),
            "rsum": estimate(6 * recall),
            "rsum_gain": estimate(6 * (recall - 50)),
        }

    def time(ms: float) -> dict[str, float]:
        return {"median": ms, "p95": 2 * ms}

    points = [
        {
            "candidates": candidates,
            "fitted": quality(recall),
            "papers": quality(recall if candidates == 1 else recall - 2),
            "ms": {"text_to_image": time(ms), "image_to_text": time(ms)},
        }
        for candidates, recall, ms in curve
    ]
    return {
        "generation": 1,
        "is_live": True,
        "measured_at": "2024-05-01T12:00:00Z",
        "data": "scenes/captions.jsonl",
        "split": "test",
        "images": 64,
        "texts": 128,
        "figures": {},
        "curve": {
            "points": points,
            "default_candidates": {"text_to_image": 24, "image_to_text": 24},
        },
    }


def test_it_asks_for_a_key_and_tells_slow_queries_to_some_alone(
    open_page: OpenPage, open_service: OpenService, tmp_path: Path
) -> None:
    keys_file = tmp_path / "keys.json"
    key = add_key(keys_file, "reader", ["read"])
    with open_service(keys_file=keys_file) as url:
        opened = open_page(url)
        opened.complaints.expect("status of 401")
        opened.complaints.expect("status of 403")
        opened.page.goto(f"{url}/state")
        opened.page.locator("#key").fill(key)
        opened.page.locator("#key").press("Enter")
        expect(opened.page.locator("#history tbody tr")).to_have_count(1)
        expect(opened.page.locator("#slow-body")).to_contain_text("keys with the scope metrics")
