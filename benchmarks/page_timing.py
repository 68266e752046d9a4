"""When something of the page is seen, by the browser's own clock."""

from __future__ import annotations

from typing import NamedTuple

from playwright.sync_api import BrowserContext, Page

_FIRST_PAINT_MS = """
() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    const paint = list.getEntriesByName("first-contentful-paint")[0];
    if (paint) resolve(paint.startTime);
  }).observe({ type: "paint", buffered: true });
})
"""

# Notes when hits are painted: a message that is posted just before a frame comes just after it.
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
    return box.top < innerHeight && box.bottom > 0;
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
    """How soon after an answer had come whole what it says was painted, in ms.

    Attributes:
        hits: all of them.
        photos: also those in view, which the page asks for once it has the hits.
    """

    hits: float
    photos: float


def first_paint_ms(page: Page) -> float:
    """Return how long the page took from its opening to its first contentful paint."""
    return float(page.evaluate(_FIRST_PAINT_MS))


def watch_hits(context: BrowserContext) -> None:
    """Have the pages of a context note when hits are painted; before the first is opened."""
    context.add_init_script(_WATCH_HITS)


def take_painted(page: Page) -> Painted:
    """Return, once they are painted, how long the latest hits took; none may be on its way."""
    page.wait_for_function("() => paintedHits.length > 0")
    return Painted(*page.evaluate("paintedHits.splice(0).at(-1)"))
