"""Measures the search page: load and paint times by the browser's clock, size and accessibility.

    python -m benchmarks.service.page [--index INDEX] [--json] [--quick] [--screenshots FOLDER]

Chromium and the service run on this machine and share its processors.

first_paint_ms       from opening the page until its first contentful paint, nothing of it known
                     before; median
first_page_browser_s processor time of Chromium's processes from opening the page, nothing of it
                     known before, until the photos in view are painted and nothing more is asked
                     for; median. Of an index with `taken_at`, the years are part of it
first_page_service_s the same of the service's processes
page_bytes           all files that the page at / is made of, as they are transferred, heads
                     included; nothing of the API's, so no photos
answer_to_shown_ms   from when the answer to words has come whole until its hits are painted; median
                     and 95th percentile
answer_to_photos_ms  the same until the photos in view are painted too
axe_violations       that axe finds in all main states, light, dark and on a phone
complaints           errors and warnings of the console, errors that no script caught, requests
                     without an answer, where none were to be expected
overflow_px          by which the widest state is wider than a phone
requests_elsewhere   hosts that were asked besides the service
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect

from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import family, processor_time_s
from benchmarks.lib.served_index import find_served_index, read_queries
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.service.chromium import NO_CHROMIUM, open_browser
from benchmarks.service.page_states import STATES, Asked
from benchmarks.service.page_visits import LOOKS, open_look, visit
from benchmarks.service.search_page import SearchPage

_FIRST_PAINT_MS = """
() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    const paint = list.getEntriesByName("first-contentful-paint")[0];
    if (paint) resolve(paint.startTime);
  }).observe({ type: "paint", buffered: true });
})
"""

# Records when hits are painted: a message posted just before a frame is received just after it.
_WATCH_HITS = """
(() => {
  performance.setResourceTimingBufferSize(100000);
  window.paintedHits = [];
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => resolve(performance.now());
    channel.port2.postMessage(null);
  }));
  const inView = (photo) => {
    const box = photo.getBoundingClientRect();
    return photo.checkVisibility() && box.top < innerHeight && box.bottom > 0;
  };
  const isHit = (node) => node instanceof Element && node.closest("#hits li.hit") !== null;
  new MutationObserver(async (changes) => {
    if (!changes.some((change) => [...change.addedNodes].some(isHit))) return;
    const shown = await painted();
    const photos = [...document.querySelectorAll("#hits img")].filter(inView);
    await Promise.allSettled(photos.map((photo) => photo.decode()));
    const answers = performance.getEntriesByType("resource")
      .filter((entry) => entry.name.includes("/v1/search/"));
    paintedHits.push([shown, await painted()].map((at) => at - answers.at(-1).responseEnd));
  }).observe(document, { childList: true, subtree: true });
})();
"""


class Painted(NamedTuple):
    """Time in ms from the complete response until its content was painted.

    Attributes:
        hits: Time until all hits were painted.
        photos: Time including the photos in view, which the page requests once it has the hits.
    """

    hits: float
    photos: float


def first_paint_ms(page: Page) -> float:
    """Return the time from opening the page to its first contentful paint."""
    return float(page.evaluate(_FIRST_PAINT_MS))


def watch_hits(context: BrowserContext) -> None:
    """Make the pages of a context record when hits are painted; call it before opening one."""
    context.add_init_script(_WATCH_HITS)


def take_painted(page: Page) -> Painted:
    """Return the time of the latest hits once they are painted; none may be pending."""
    page.wait_for_function("() => paintedHits.length > 0")
    return Painted(*page.evaluate("paintedHits.splice(0).at(-1)"))


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Number of repetitions of each measurement.

    Attributes:
        loads: Number of loads of the page.
        searches: Number of searches with words.
        states: States of the page to check.
    """

    loads: int = 15
    searches: int = 60
    states: tuple[str, ...] = tuple(STATES)


QUICK = Effort(loads=3, searches=5, states=("start", "evidence"))


@dataclass(kw_only=True)
class Figures:
    """Measured values; see the docstring of the module."""

    index: str
    first_paint_ms: float
    first_page_browser_s: float
    first_page_service_s: float
    answer_to_shown_ms: float
    answer_to_shown_p95_ms: float
    answer_to_photos_ms: float
    answer_to_photos_p95_ms: float
    page_bytes: int
    axe_violations: int
    complaints: int
    overflow_px: int
    requests_elsewhere: int
    files: dict[str, int]
    every_violation: list[str]
    every_complaint: list[str]
    elsewhere: list[str]


def measure(
    index: Path, effort: Effort, words: str | None = None, screenshots: Path | None = None
) -> Figures:
    """Measure the page of a separate service.

    Args:
        index: Index to serve, with captions and picture files.
        effort: Number of repetitions.
        words: Words to search for when a state is checked, or None for a caption of the index.
        screenshots: Folder for a picture of each state.

    Raises:
        SystemExit: If Chromium is missing, or no queries can be made from the index.
    """
    queries = read_queries(index)
    with (
        tempfile.TemporaryDirectory() as folder,
        ServiceProcess(index) as service,
        open_browser() as browser,
    ):
        if browser is None:
            raise SystemExit(NO_CHROMIUM)
        first_ms = _first_paints_ms(browser, service.url, effort.loads)
        first_pages = _first_pages_s(browser, service, effort.loads)
        painted = _paints(browser, service.url, queries.new_texts(effort.searches))
        asked = write_asked(Path(folder), words or queries.texts[0], queries.photos[0])
        by_state = {
            state: [visit(browser, service.url, state, look, asked, screenshots) for look in LOOKS]
            for state in effort.states
        }
    visits = [each for of_state in by_state.values() for each in of_state]
    violations = [line for each in visits for line in each.violations]
    complaints = [line for each in visits for line in each.complaints]
    elsewhere = sorted({host for each in visits for host in each.elsewhere})
    files = {
        path: size
        for state, of_state in by_state.items()
        if STATES[state].path == "/"
        for each in of_state
        for path, size in each.files.items()
    }
    hits_ms, photos_ms = np.array(painted).T
    browser_s, service_s = np.median(first_pages, axis=0).tolist()
    return Figures(
        index=index.resolve().name,
        first_paint_ms=float(np.median(first_ms)),
        first_page_browser_s=browser_s,
        first_page_service_s=service_s,
        answer_to_shown_ms=float(np.median(hits_ms)),
        answer_to_shown_p95_ms=float(np.percentile(hits_ms, 95)),
        answer_to_photos_ms=float(np.median(photos_ms)),
        answer_to_photos_p95_ms=float(np.percentile(photos_ms, 95)),
        page_bytes=sum(files.values()),
        axe_violations=len(violations),
        complaints=len(complaints),
        overflow_px=max(each.overflow_px for each in visits),
        requests_elsewhere=len(elsewhere),
        files=files,
        every_violation=violations,
        every_complaint=complaints,
        elsewhere=elsewhere,
    )


def _first_paints_ms(browser: Browser, url: str, loads: int) -> list[float]:
    took_ms: list[float] = []
    for _ in range(loads):
        with open_look(browser, LOOKS["light"]) as context:
            page = context.new_page()
            page.goto(url)
            took_ms.append(first_paint_ms(page))
    return took_ms


def _first_pages_s(
    browser: Browser, service: ServiceProcess, loads: int
) -> list[tuple[float, float]]:
    """Return the processor time of the browser and of the service for each first page."""
    took_s: list[tuple[float, float]] = []
    for _ in range(loads):
        with open_look(browser, LOOKS["light"]) as context:
            search = SearchPage(context, service.url)
            browser_s, service_s = _chromium_s(), processor_time_s(service.pids())
            search.open()
            expect(search.listed.first).to_be_visible()
            search.expect_photos()
            search.page.wait_for_load_state("networkidle")
            # A process that the page got began with no time, unless it was there before.
            spent_s = sum(s - browser_s.get(pid, 0.0) for pid, s in _chromium_s().items())
            took_s.append((spent_s, processor_time_s(service.pids()) - service_s))
    return took_s


def _chromium_s() -> dict[int, float]:
    """Return the processor time of each of the browser's processes."""
    return {
        pid: processor_time_s([pid])
        for pid in family(os.getpid())
        if Path(f"/proc/{pid}/exe").readlink().name.startswith("chrom")
    }


def _paints(browser: Browser, url: str, texts: Sequence[str]) -> list[Painted]:
    """Search with words that have not been used before."""
    with open_look(browser, LOOKS["light"]) as context:
        watch_hits(context)
        search = SearchPage(context, url).open()
        painted: list[Painted] = []
        for text in texts:
            search.find(text)
            painted.append(take_painted(search.page))
        return painted


def write_asked(folder: Path, words: str, photo: bytes) -> Asked:
    """Write the files to search with.

    Args:
        folder: Folder for the files.
        words: Words to search for as well.
        photo: Content of a picture file that a browser supports.
    """
    picture, other = folder / "photo.png", folder / "notes.txt"
    Image.open(io.BytesIO(photo)).save(picture)
    other.write_text("This is no photo.\n", encoding="utf-8")
    return Asked(words=words, photo=picture, no_photo=other)


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "some seconds, a smaller index, two of the states")
    parser.add_argument("--index", type=Path, help="index to serve; default: a synthetic one")
    parser.add_argument("--words", help="to be searched for in the states; default: a caption")
    parser.add_argument("--screenshots", type=Path, help="folder for a picture of each state")
    options = parser.parse_args()
    index = find_served_index(options.index, quick=options.quick)
    effort = QUICK if options.quick else Effort()
    figures = asdict(measure(index, effort, options.words, options.screenshots))
    print_figures(figures, as_json=options.json)
    if not options.json:
        for line in [*figures["every_violation"], *figures["every_complaint"]]:
            print(line)


if __name__ == "__main__":
    main()
