"""Simulated users of a soak test: mostly searches, sometimes other or invalid requests."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from benchmarks.lib.served_index import ServiceQueries
from benchmarks.service.load_client import http_request, search_request

_OK = frozenset({200})
# Fraction of the searches with popular texts, such as the examples of a page; other texts are new.
_POPULAR_SHARE, _POPULAR = 0.3, 50
_BATCH = 8
_SIZES_PX = (64, 128, 256)


@dataclass(frozen=True)
class Step:
    """One action of a user.

    Attributes:
        kind: Kind of the step, for the report.
        request: Request in the format sent over the wire.
        expected: Accepted statuses; 429 is always accepted.
        hang_up: Disconnect before the answer.
    """

    kind: str
    request: bytes
    expected: Collection[int] = _OK
    hang_up: bool = False


class SoakTraffic:
    """Draws steps; the same seed gives the same steps."""

    def __init__(self, queries: ServiceQueries, seed: int = 0) -> None:
        """Create a generator of steps from the queries of an index."""
        self._queries = queries
        self._random = random.Random(seed)
        self._popular = queries.texts[:_POPULAR]
        self._written = 0
        self._kinds: dict[str, tuple[float, Callable[[], Step]]] = {
            "text": (60, self._text),
            "explain": (8, self._explain),
            "photo": (5, self._photo),
            "item": (10, self._item),
            "batch": (1.5, self._batch),
            "thumbnail": (8, self._thumbnail),
            "description": (2, self._description),
            "bad": (3, self._bad),
            "hang up": (2, self._hang_up),
            "write": (0.5, self._write),
        }

    def step(self, *, only_reading: bool = False) -> Step:
        """Draw a step.

        Args:
            only_reading: Exclude writes and disconnects.
        """
        excluded = ("write", "hang up") if only_reading else ()
        names = [name for name in self._kinds if name not in excluded]
        weights = [self._kinds[name][0] for name in names]
        return self._kinds[self._random.choices(names, weights)[0]][1]()

    def _draw_text(self) -> str:
        if self._random.random() < _POPULAR_SHARE:
            return self._random.choice(self._popular)
        return self._queries.new_texts(1, self._random.randrange(2**32))[0]

    def _text(self) -> Step:
        fields: dict[str, Any] = {"text": self._draw_text()}
        if self._random.random() < 0.2:
            fields["k"] = self._random.choice((1, 20, 50))
        return Step("text", search_request("images", fields))

    def _explain(self) -> Step:
        fields = {"text": self._draw_text(), "explain": True}
        return Step("explain", search_request("images", fields))

    def _photo(self) -> Step:
        data = self._random.choice(self._queries.photos)
        if self._random.random() < 0.5:
            encoded = base64.b64encode(data).decode()
            return Step("photo", search_request("images", {"image": encoded}))
        body = (
            b'--edge\r\nContent-Disposition: form-data; name="image"; filename="photo"\r\n\r\n'
            + data
            + b"\r\n--edge--\r\n"
        )
        form = "multipart/form-data; boundary=edge"
        return Step("photo", http_request("POST", "/v1/search/images", body, form))

    def _item(self) -> Step:
        target = self._random.choice(list(self._queries.ids))
        item_id = self._random.choice(self._queries.ids[target])
        return Step("item", search_request("images", {"id": item_id}))

    def _batch(self) -> Step:
        queries = [{"target": "images", "text": self._draw_text()} for _ in range(_BATCH)]
        body = json.dumps({"queries": queries}).encode()
        return Step("batch", http_request("POST", "/v1/search/batch", body))

    def _thumbnail(self) -> Step:
        item_id = quote(self._random.choice(self._queries.ids["images"]), safe="/")
        size = self._random.choice(_SIZES_PX)
        return Step("thumbnail", http_request("GET", f"/v1/images/{item_id}?size={size}"))

    def _description(self) -> Step:
        path = self._random.choice(("/v1/index", "/metrics", "/readyz", "/healthz"))
        return Step("description", http_request("GET", path))

    def _bad(self) -> Step:
        status, request = self._random.choice(
            (
                (422, search_request("images", {"text": ""})),
                (422, search_request("images", {"text": "a dog", "k": 0})),
                (422, search_request("images", {"text": "a dog", "colour": "red"})),
                (422, http_request("POST", "/v1/search/images", b'{"text": ')),
                (404, search_request("images", {"id": "no-such-item"})),
                (404, http_request("GET", "/v1/nothing")),
                (415, search_request("images", {"image": "AAAA"})),
                (415, http_request("POST", "/v1/search/images", b"a dog", "text/plain")),
            )
        )
        return Step("bad", request, (status,))

    def _hang_up(self) -> Step:
        whole = self._random.choice((self._text, self._photo))().request
        if self._random.random() < 0.3:  # within the request
            whole = whole[: self._random.randrange(1, len(whole))]
        return Step("hang up", whole, hang_up=True)

    def _write(self) -> Step:
        """Add a photo, and delete it the next time."""
        number, is_deletion = divmod(self._written, 2)
        self._written += 1
        item_id = f"soak-{number}"
        if is_deletion:
            # 404 if the addition was rejected.
            return Step("write", http_request("DELETE", f"/v1/items/images/{item_id}"), (200, 404))
        data = base64.b64encode(self._random.choice(self._queries.photos)).decode()
        body = json.dumps({"id": item_id, "image": data}).encode()
        return Step("write", http_request("POST", "/v1/items/images", body), (201,))
