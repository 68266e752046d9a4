"""What the page opens on: all items, the newest first, and searches to begin with."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, expect

from aladin_index.building.builder import build_index
from aladin_index.format.skipped import SkippedItem, record_stop, write_follow_record
from aladin_index.settings import EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_service.item_sources import image_items
from aladin_service.library.folder_sync import FolderSettings, FolderSync
from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import PageOf
from tests.service.library.persons_folder import make_persons_folder

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"
# When the first photos were taken; the others have no date.
_TAKEN = [
    f"{day}:00:00" for day in ("2023-03-05T10", "2024-07-01T09", "2023-03-31T23", "2021-12-24T18")
]
_GONE = 1  # the file of this photo is removed


@pytest.fixture(scope="module")
def dated(index_folder: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of twelve photos without captions, four with a date, five with a camera."""
    folder = tmp_path_factory.mktemp("dated")
    lines = [json.loads(line) for line in data_file.read_text(encoding="utf-8").splitlines()]
    (folder / "images").mkdir()
    for number, line in enumerate(lines[:12]):
        shutil.copy(data_file.parent / line["image"], folder / line["image"])
        del line["captions"]
        line["id"] = f"trip/{number}.png"
        line["metadata"] = {}
        if number < len(_TAKEN):
            camera = "Box" if number == 0 else "Phone"
            line["metadata"] = {"taken_at": _TAKEN[number], "camera": camera}
            line["metadata"] |= {"lat": 43.7, "lon": 10.4}
        elif number == len(_TAKEN):
            line["metadata"] = {"camera": ""}
    file = folder / "photos.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines[:12]), encoding="utf-8")
    build_index(index_folder / "model", folder / "index", image_items(file, None), None)
    (folder / lines[_GONE]["image"]).unlink()
    return folder / "index"


@pytest.fixture
def dated_page(dated: Path, page_of: PageOf) -> Iterator[SearchPage]:
    with page_of(index=dated) as page:
        yield open_dated(page)


def open_dated(page: SearchPage) -> SearchPage:
    """Open the page of such a library; return when the photo that is gone has been missed."""
    page.complaints.expect("status of 404")
    expect(gone_photo(page.open()).locator(".lost")).to_be_visible()
    return page


def gone_photo(page: SearchPage) -> Locator:
    return page.page.locator(f"#library li[data-id='trip/{_GONE}.png']")


def sort(page: SearchPage, **option: str) -> None:
    page.page.locator("#sort").select_option(**option)


def test_the_newest_come_first_uncut_and_all_can_be_reached(
    page: SearchPage, api: httpx.Client
) -> None:
    newest = [item["id"] for item in api.get("/v1/items/images?limit=100").json()["items"]]
    page.open()
    expect(page.listed.first).to_be_visible()
    page.expect_photos()
    expect(page.status).to_have_text("64 photos.")
    frames = page.listed.locator("img").evaluate_all(
        "photos => photos.filter(photo => photo.naturalWidth).map(photo => "
        "photo.offsetWidth / photo.offsetHeight * photo.naturalHeight / photo.naturalWidth)"
    )
    assert frames == pytest.approx([1] * len(frames), abs=0.02)
    page.page.locator("#more").scroll_into_view_if_needed()
    expect(page.listed).to_have_count(64)
    assert data_of(page.listed, "id") == newest
    sort(page, value="asc")
    expect(page.listed.first).to_have_attribute("data-id", newest[-1])


def test_an_index_of_photos_without_metadata_offers_no_filter_and_no_texts(
    page_of: PageOf, index_folder: Path, data_file: Path, tmp_path: Path
) -> None:
    build_index(index_folder / "model", tmp_path / "index", image_items(data_file, None), None)
    with page_of(index=tmp_path / "index") as page:
        page.page.route(
            "**/v1/index/fields", lambda route: route.fulfill(json={"images": [], "texts": []})
        )
        found = page.open().find(WORDS)["hits"][0]["id"]
        expect(page.page.locator("#index-info")).to_have_text("64 photos")
        expect(page.page.get_by_role("group", name="What to find")).to_be_hidden()
        toggle = page.page.locator("#filter-toggle")
        expect(toggle).to_be_hidden()
        page.open_evidence(page.hits.first)
        actions = page.viewer.locator("#viewer-actions")
        expect(actions.get_by_role("button", name="Texts for this photo")).to_be_hidden()
        with page.answer_shown():
            actions.get_by_role("button", name="More like this").click()
        expect(page.hits).to_have_count(24)
        assert found not in page.ids()
        page.page.goto("about:blank")
        page.open("filter=" + json.dumps({"number": 3}))  # one that is in force can be seen
        expect(page.listed).to_have_count(1)
        expect(toggle).to_be_visible()


def test_examples_are_texts_of_the_index(page: SearchPage, api: httpx.Client) -> None:
    texts = api.get("/v1/items/texts?limit=100").json()["items"]
    page.open()
    examples = page.page.locator("#examples button")
    expect(examples).to_have_count(4)
    shown = examples.all_text_contents()
    assert {text.strip(". ") for text in shown} <= {item["text"].strip(". ") for item in texts}

    with page.answer_shown() as answer:
        examples.nth(1).click()

    assert answer["hits"]
    expect(page.words).to_have_value(shown[1])
    expect(page.page.locator("#suggestions")).to_be_hidden()


def test_recent_searches_are_offered_until_they_are_cleared(page: SearchPage) -> None:
    page.open().find(WORDS)
    page.find("two dogs")
    page.words.fill("")
    page.words.press("Enter")
    recent = page.page.locator("#history .chip")
    expect(recent).to_have_text(["two dogs", WORDS])
    options = page.page.locator("#recent option")
    assert options.evaluate_all("all => all.map(one => one.value)") == ["two dogs", WORDS]

    page.page.reload()
    with page.answer_shown():
        recent.nth(1).click()
    page.page.go_back()
    page.page.get_by_role("button", name="Clear recent searches").click()

    expect(page.page.locator("#history")).to_be_hidden()
    assert WORDS not in page.page.evaluate("JSON.stringify(localStorage)")


def test_the_details_and_the_size_are_remembered(page: SearchPage) -> None:
    page.open()
    details = page.page.get_by_role("button", name="Details")
    expect(details).to_have_attribute("aria-pressed", "false")
    details.click()
    page.page.get_by_label("Size of the photos").fill("400")
    page.expect_photos()
    height = page.listed.first.locator("img").evaluate("photo => photo.offsetHeight")

    page.page.reload()

    expect(details).to_have_attribute("aria-pressed", "true")
    expect(page.page.get_by_label("Size of the photos")).to_have_value("400")
    expect(page.listed.first).to_be_visible()
    page.expect_photos()
    assert page.listed.first.locator("img").evaluate("photo => photo.offsetHeight") == height > 300


def test_months_are_headings_and_dates_are_the_natural_orders(dated_page: SearchPage) -> None:
    months = dated_page.page.locator("#library h2")
    options = dated_page.page.locator("#sort option")
    expect(months).to_have_text(["July 2024", "March 2023", "December 2021", "Without a date"])
    assert [item.removesuffix(".png") for item in data_of(dated_page.listed, "id")[:5]] == (
        ["trip/1", "trip/2", "trip/0", "trip/3", "trip/11"]
    )
    expect(dated_page.page.locator("#examples")).to_be_hidden()  # there are no texts
    every = ["Newest first", "Oldest first", "Last added first", "Camera, A to Z"]
    expect(options).to_have_text(every)
    sort(dated_page, value="asc")
    expect(months).to_have_text(["December 2021", "March 2023", "July 2024", "Without a date"])
    sort(dated_page, label="Last added first")
    expect(dated_page.listed.first).to_have_attribute("data-id", "trip/11.png")
    expect(months).to_have_count(0)

    dated_page.find(WORDS)
    expect(options).to_have_text(["Best match", "Newest first", "Oldest first", "Camera, A to Z"])
    with dated_page.answer_shown():
        sort(dated_page, label="Oldest first")
    assert dated_page.ids()[:4] == ["trip/3.png", "trip/0.png", "trip/2.png", "trip/1.png"]
    expect(dated_page.status).to_contain_text("12 photos shown, oldest first.")


def test_a_photo_whose_file_is_gone_says_so(dated_page: SearchPage) -> None:
    gone = gone_photo(dated_page)
    expect(gone.locator(".lost")).to_contain_text("Photo not found")
    expect(gone.locator(".lost")).to_contain_text("images/")

    gone.locator("button.open").click()

    expect(dated_page.viewer.locator(".lost")).to_contain_text("Photo not found")


def test_days_and_values_are_chosen_from_what_is_there(dated_page: SearchPage) -> None:
    dated_page.page.locator("#filter-toggle").click()
    panel = dated_page.page.locator("#filter-form")
    camera = panel.get_by_role("group", name="Camera")
    expect(camera.get_by_role("checkbox")).to_have_count(3)
    expect(camera).to_contain_text("Phone3")  # how many have it

    camera.get_by_label("Phone").check()
    expect(dated_page.listed).to_have_count(3)
    taken = panel.get_by_role("group", name="Date taken")
    taken.get_by_label("To").fill("2023-03-31")  # the whole of that day
    taken.get_by_label("To").press("Tab")
    expect(dated_page.listed).to_have_count(2)
    in_force = dated_page.page.locator("#filters-in-force")
    expect(in_force).to_contain_text("Camera is Phone")
    expect(in_force).to_contain_text("Date taken before April 1, 2023")

    dated_page.page.reload()
    expect(dated_page.listed).to_have_count(2)
    dated_page.page.locator("#filter-toggle").click()
    expect(camera.get_by_label("Phone")).to_be_checked()
    expect(taken.get_by_label("To")).to_have_value("2023-03-31")
    camera.get_by_label("Phone").uncheck()
    expect(dated_page.listed).to_have_count(3)
    panel.get_by_role("button", name="Clear filter").click()
    expect(dated_page.listed).to_have_count(12)
    for name, count in (("(empty)", 1), ("Phone", 4)):
        camera.get_by_label(name).check()
        expect(dated_page.listed).to_have_count(count)
    camera.get_by_label("Phone").uncheck()
    expect(dated_page.listed).to_have_count(1)
    dated_page.page.reload()
    expect(dated_page.listed).to_have_count(1)


def test_numbers_beside_values_follow_the_other_conditions_and_the_words(
    dated: Path, page_of: PageOf
) -> None:
    with page_of(index=dated) as page:
        open_dated(page)
        page.page.locator("#filter-toggle").click()
        panel, among = page.page.locator("#filter-form"), page.page.locator("#facets-among")
        camera = panel.get_by_role("group", name="Camera")
        numbers, taken = camera.locator(".items"), panel.get_by_role("group", name="Date taken")
        expect(numbers).to_have_text(["3", "1", "1"])  # Phone, none, Box
        expect(among).to_be_empty()

        taken.get_by_label("From").fill("2023-03-05")
        taken.get_by_label("From").press("Tab")
        expect(numbers).to_have_text(["2", "0", "1"])
        expect(among).to_have_text("Counted among the photos that pass the other conditions.")
        camera.get_by_label("Box").check()
        expect(page.listed).to_have_count(1)
        expect(numbers).to_have_text(["2", "0", "1"])  # what else there is to choose

        page.open("text=a+red+star&candidates=5")  # the panel stays open
        nearest = page.page.request.post(
            f"{page.url}/v1/search/images",
            data={"text": "a red star", "k": 5, "rerank": False, "candidates": 5},
        ).json()["hits"]
        cameras = [hit["metadata"].get("camera") for hit in nearest]
        expect(numbers).to_have_text([str(cameras.count(each)) for each in ("Phone", "", "Box")])
        expect(among).to_have_text("Counted among the 5 photos nearest to the query.")
        camera.get_by_label("Phone").check()
        expect(page.hits).to_have_count(3)
        expect(among).to_contain_text("nearest to the query that pass the other conditions.")
        expect(numbers).to_have_text([str(cameras.count(each)) for each in ("Phone", "", "Box")])


def test_only_photos_of_the_same_day(dated_page: SearchPage) -> None:
    dated_page.listed.nth(1).locator("button.open").click()
    facts = dated_page.viewer.locator("#viewer-facts")
    expect(facts).to_contain_text("43.7, 10.4")

    facts.get_by_role("button", name="March 31, 2023").click()

    expect(dated_page.listed).to_have_count(1)
    expect(dated_page.viewer).to_be_hidden()


def test_back_from_a_search_leads_to_the_same_place(page: SearchPage) -> None:
    page.open()
    expect(page.listed.first).to_be_visible()
    page.page.evaluate("scrollTo(0, 500)")
    page.find(WORDS)
    page.page.evaluate("scrollTo(0, 0)")

    page.page.go_back()

    expect(page.listed.first).to_be_attached()
    page.page.wait_for_function("() => scrollY === 500")


def test_about_this_library_has_counts_model_and_last_change(
    page: SearchPage, api: httpx.Client
) -> None:
    index = api.get("/v1/index").json()
    page.open()
    about = page.page.locator("#about")
    expect(about.locator("summary")).to_have_text("About this library")
    expect(about.locator("dl")).to_be_hidden()
    about.locator("summary").click()
    rows = [row.split("\n", 1) for row in about.locator("dl > div").all_inner_texts()]
    facts = {name: value.strip() for name, value in rows}
    changed = page.page.evaluate(
        "at => new Intl.DateTimeFormat('en', { dateStyle: 'long', timeStyle: 'short' })"
        ".format(new Date(at))",
        index["changed_at"],
    )
    assert facts == {
        "Contains": f"{index['images']['count']} photos · {index['texts']['count']} texts",
        "Left out": "Nothing",
        "Search": "In two stages: first by whole photos, then word by word by the parts of the best"
        " ones. An open hit shows which part was found for a word.",
        "Model": index["model"]["id"][:12],
        "Last change": changed,
    }
    page.find("a red star")
    expect(about).to_be_hidden()


def test_about_this_library_names_a_pretrained_model(page: SearchPage, api: httpx.Client) -> None:
    index = api.get("/v1/index").json()
    index["model"]["name"] = "Xenova/clip-vit-base-patch32:fp16"
    page.page.route("**/v1/index", lambda route: route.fulfill(json=index))
    page.open()
    page.page.locator("#about summary").click()
    row = page.page.locator("#about dl > div", has_text="Model")
    expect(row.locator("dd")).to_have_text(
        f"Xenova/clip-vit-base-patch32:fp16 {index['model']['id'][:12]}"
    )


def test_what_is_left_out_is_told_by_reason(dated: Path, page_of: PageOf, tmp_path: Path) -> None:
    index = Path(shutil.copytree(dated, tmp_path / "index"))
    heic = [SkippedItem(f"IMG_{number}.HEIC", "HEIC needs a package") for number in range(26)]
    rare = [SkippedItem(f"{number}.jpg", f"reason {number}") for number in range(21)]
    write_follow_record(index, [*heic, *rare, SkippedItem("<b>.jpg", "reason 0")], {"videos": 8})
    with page_of(index=index) as page:
        open_dated(page)
        about, warning = page.page.locator("#about"), page.page.locator("#index-warning")
        left_out = page.page.locator("#left-out")
        summary, lines = left_out.locator("summary"), left_out.locator("li")
        expect(summary).to_have_text("48 files left out")
        expect(lines.first).to_be_hidden()
        about.locator("summary").click()
        about.get_by_role("button", name="48 files left out").click()
        expect(summary).to_be_focused()
        of_heic = re.compile(
            r"^26 files: HEIC needs a package \(IMG_0\.HEIC, .*19\.HEIC, and 6 more\)$"
        )
        expect(lines).to_have_count(22)  # twenty reasons, all others, and one kind
        expect(lines.first).to_have_text(of_heic)
        expect(lines.nth(1)).to_have_text("2 files: reason 0 (0.jpg, <b>.jpg)")
        expect(lines.nth(20)).to_have_text("2 files: for other reasons")
        expect(lines.nth(21)).to_have_text("8 files: videos")
        expect(warning).to_be_hidden()

        record_stop(index, "it was killed")
        page.page.reload()
        expect(warning).to_contain_text("are not followed any more (it was killed)")
        write_follow_record(index, [], {"videos": 1})
        page.page.reload()
        expect(warning).to_be_hidden()
        expect(summary).to_have_text("1 file that is no photo")
        write_follow_record(index, [], {})
        page.page.reload()
        expect(page.listed.first).to_be_visible()
        expect(left_out).to_be_hidden()


def test_of_a_persons_folder_every_file_is_listed_named_or_counted(
    tiny_checkpoint: Path, page_of: PageOf, tmp_path: Path
) -> None:
    folder, index = tmp_path / "Pictures", tmp_path / "index"
    made = make_persons_folder(folder)
    build_index(tiny_checkpoint, index, image_items(folder / "exif", None), None)
    settings = FolderSettings(folders=[folder], add=EncodeSettings(readers=2))
    sync = FolderSync(index, settings, checkpoint=load_checkpoint(tiny_checkpoint))
    sync.run()
    with page_of(index=index) as page:
        page.open()
        expect(page.page.locator("#index-info")).to_have_text(f"{len(made.found)} photos")
        summary = page.page.locator("#left-out summary")
        expect(summary).to_have_text(f"{len(made.named)} files left out")
        summary.click()
        told = page.page.locator("#left-out").inner_text().split("Not photos")
        assert sum(map(int, re.findall(r"^(\d+) files?: ", told[0], re.MULTILINE))) == len(
            made.named
        )
        for name, reason in made.named.items():
            (line,) = (line for line in told[0].splitlines() if name in line)
            assert reason in line
        counted = re.findall(r"^(\d+) files?: (.+)$", told[1], re.MULTILINE)
        assert {kind: int(count) for count, kind in counted} == made.counted

        # The open page follows: one more that cannot be used, one renamed, one gone.
        (folder / "broken" / "new.jpg").write_bytes(b"no photo")
        (folder / "broken" / "noise.jpg").rename(folder / "broken" / "sound.jpg")
        sync.run()
        lines = page.page.locator("#left-out li")
        expect(summary).to_have_text(f"{len(made.named) + 1} files left out")
        expect(lines.filter(has_text="sound.jpg")).to_contain_text("new.jpg")
        expect(lines.filter(has_text="noise.jpg")).to_have_count(0)
        expect(page.page.locator("#left-out")).to_have_attribute("open", "")
        (folder / "broken" / "sound.jpg").unlink()
        sync.run()
        expect(summary).to_have_text(f"{len(made.named)} files left out")
