"""Clients of an index that is being upgraded, and what its answers have to be.

Every hit's cosine is compared with that of the network that the answer names for it. All photos and
queries are encoded by all networks in advance.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.upgrade.bridge import Bridge, unit_rows
from aladin_index.upgrade.methods import read_methods
from aladin_network.errors import SearchIndexError
from benchmarks.lib.small_collection import photo_fields

Vectors = dict[str, NDArray[np.float32]]

_CLIENTS = 3
_NEAR = 2e-3
_ASK_S = 60.0
_CHANGE_S = 0.05
_SHOWN = 10


@dataclass(frozen=True)
class Encodings:
    """What one network makes of everything.

    Attributes:
        model_id: SHA-256 of its weights.
        texts: Embedding of each text query.
        photos: Embedding of each photo by its id: those of the index, those to be added, and those
            to ask with.
    """

    model_id: str
    texts: Vectors
    photos: Vectors


@dataclass
class Counts:
    """Outcomes of the requests; see `benchmarks.index.upgrade_kills`."""

    queries: int = 0
    by_both: int = 0
    failed: int = 0
    unsaid: int = 0
    deleted_found: int = 0
    added: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    milliseconds: list[float] = field(default_factory=list[float])
    unexpected: list[str] = field(default_factory=list[str])

    def note(self, what: str) -> None:
        """Keep what was unexpected, as far as it is to be shown."""
        if len(self.unexpected) < _SHOWN:
            self.unexpected.append(what)


class Oracle:
    """Tells whether an answer is what it says; thread-safe."""

    def __init__(self, index: Path, networks: Sequence[Encodings]) -> None:
        """Know what all networks make of all photos and queries.

        Args:
            index: Folder of the index.
            networks: Networks in the order in which the index gets them: the n-th generation that
                goes live is of the n-th.
        """
        self._index = index
        self._networks = networks
        self._by_id = {each.model_id: each for each in networks}
        self._bridges: dict[str, Bridge] = {}

    def fault(self, query: str, answer: Mapping[str, Any], *, is_text: bool) -> str | None:
        """Return what is wrong with an answer, or None.

        Args:
            query: Text of the query, or the id of the photo that asks.
            answer: The answer of the service.
            is_text: Whether the query is a text.
        """
        upgrade = answer.get("upgrade")
        if upgrade is None:
            network = self._networks[answer["generation"] - 1]
            models = {hit.get("model") for hit in answer["hits"]}
            if models - {None}:
                return f"hits of {models} in an answer of one network"
            return self._fault(network, network, None, query, answer["hits"], is_text=is_text)
        old, new = (self._by_id[upgrade[name]] for name in ("old_model", "new_model"))
        for model in ("old", "new", "bridge"):
            hits = [hit for hit in answer["hits"] if hit["model"] == model]
            bridge = self._bridge(new.model_id) if model == "bridge" and hits else None
            asking, stored = (old if model == "old" else new), (new if model == "new" else old)
            fault = self._fault(asking, stored, bridge, query, hits, is_text=is_text)
            if fault is not None:
                return f"{model}: {fault}"
        return None

    def _fault(
        self,
        asking: Encodings,
        stored: Encodings,
        bridge: Bridge | None,
        query: str,
        hits: Sequence[Mapping[str, Any]],
        *,
        is_text: bool,
    ) -> str | None:
        vector = (asking.texts if is_text else asking.photos)[query]
        if bridge is not None:
            vector = unit_rows(vector[None] @ bridge.embedding)[0]
        for hit in hits:
            expected = float(stored.photos[hit["id"]] @ vector)
            found = hit["stages"]["match"]["score"]
            if abs(expected - found) > _NEAR:
                return f"{query!r}, {hit['id']!r}: expected a cosine of {expected}, got {found}"
        return None

    def _bridge(self, model_id: str) -> Bridge:
        """Return the bridge of the upgrade to a model, read while the upgrade is unfinished."""
        if model_id not in self._bridges:
            methods = read_methods(self._index)
            chosen = None if methods is None else methods["images"].bridge
            if chosen is None:
                raise SearchIndexError("an answer came over a bridge that the index does not have")
            self._bridges[model_id] = chosen
        return self._bridges[model_id]


@dataclass(frozen=True)
class Traffic:
    """Clients that search without a pause, and one that adds photos and deletes items.

    Attributes:
        port: Port of the service.
        oracle: Checks the answers.
        texts: Texts to ask with.
        photos: Photos to ask with, by their ids.
        new: Photos to be added, by their ids.
        built: Ids of the photos of the index.
        queries: Number of searches to make.
        done: Number of searches made so far, for other processes.
        ended: Set when enough searches are made and the upgrade is finished.
    """

    port: int
    oracle: Oracle
    texts: Sequence[str]
    photos: Mapping[str, bytes]
    new: Mapping[str, bytes]
    built: Sequence[str]
    queries: int
    done: Synchronized[int]
    ended: Event

    def run(self) -> Counts:
        """Search and change the index until `ended` is set and all queries are made."""
        counts, lock = Counts(), threading.Lock()
        threads = [
            threading.Thread(target=self._search, args=(number, counts, lock))
            for number in range(_CLIENTS)
        ]
        threads.append(threading.Thread(target=self._change, args=(counts, lock)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return counts

    def _search(self, seed: int, counts: Counts, lock: threading.Lock) -> None:
        chance, connection = random.Random(seed), self._connect()
        while not (self.ended.is_set() and self.done.value >= self.queries):
            fields, query, is_text = self._draw(chance)
            with lock:
                gone = set(counts.deleted)
            began_s = time.perf_counter()
            try:
                status, body = _ask(connection, "POST", "/v1/search/images", fields)
            except (OSError, http.client.HTTPException) as error:
                status, body, connection = 0, str(error).encode(), self._connect()
            took_ms = 1000 * (time.perf_counter() - began_s)
            fault = None
            answer: dict[str, Any] = json.loads(body) if status == 200 else {}
            if status == 200:
                fault = self.oracle.fault(query, answer, is_text=is_text)
            with lock:
                counts.queries += 1
                counts.milliseconds.append(took_ms)
                self.done.value = counts.queries
                if status != 200:
                    counts.failed += 1
                    counts.note(f"{status} {body.decode()[:300]}")
                    continue
                counts.by_both += answer.get("upgrade") is not None
                counts.deleted_found += any(hit["id"] in gone for hit in answer["hits"])
                if fault is not None:
                    counts.unsaid += 1
                    counts.note(fault)

    def _draw(self, chance: random.Random) -> tuple[dict[str, Any], str, bool]:
        """Draw a query: its fields, its text or the id of its photo, and whether it is a text."""
        kind = chance.random()
        if kind < 0.08:
            photo = chance.choice([*self.photos])
            image = base64.b64encode(self.photos[photo]).decode()
            return {"image": image, "k": 5}, photo, False
        if kind < 0.15:
            item = chance.choice(self.built[: len(self.built) // 2])  # of which none is deleted
            return {"id": item}, item, False
        text = chance.choice(self.texts)
        fields: dict[str, Any] = {"text": text}
        if kind < 0.25:
            fields |= {"filter": {"parity": "even"}, "offset": 10, "k": 20}
        elif kind < 0.3:
            fields |= {"explain": True, "k": 3}
        return fields, text, True

    def _change(self, counts: Counts, lock: threading.Lock) -> None:
        """Add the new photos, and delete photos of the second half of the index, in turn."""
        connection = self._connect()
        new, gone = iter(self.new.items()), iter(reversed(self.built))
        while not (self.ended.is_set() and self.done.value >= self.queries):
            time.sleep(_CHANGE_S)
            item = next(new, None)
            if item is None:
                return
            try:
                path = "/v1/items/images"
                status, body = _ask(connection, "POST", path, photo_fields(*item))
                if status == 201:
                    with lock:
                        counts.added.append(item[0])
                else:
                    counts.note(f"adding: {status} {body.decode()[:300]}")
                item_id = next(gone)
                status, body = _ask(connection, "DELETE", f"{path}/{urllib.parse.quote(item_id)}")
                if status == 200:
                    with lock:
                        counts.deleted.append(item_id)
                else:
                    counts.note(f"deleting: {status} {body.decode()[:300]}")
            except (OSError, http.client.HTTPException):
                connection = self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_S)


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, fields: Any = None
) -> tuple[int, bytes]:
    body = None if fields is None else json.dumps(fields)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()
