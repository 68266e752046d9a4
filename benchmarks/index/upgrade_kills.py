"""Kills upgrades of a served index to another model while clients search and change it.

    python -m benchmarks.index.upgrade_kills [--photos 2000] [--kills 20] [--quick] [--json]

A service with two worker processes serves an index of random photos by a small network. Clients
search it with texts and photos without a pause; another one adds photos and deletes items.
Meanwhile `upgrade_index` gives the index one network after another, in a process that is killed
with SIGKILL at random moments and started again: half of the kills come while items are encoded,
the others from the moment when all are encoded to the switch, and after it.

queries         searches; each answer names a generation, and every cosine has to be that of the
                network of this generation
failed          searches with another status than 200; must be 0
other_model     answers with a hit that another network scored; must be 0
other_time      answers of a generation that was not live between request and answer; must be 0
kills           killed upgrades, and what they were doing
upgrades        upgrades that came to their end
acknowledged    additions and deletions that the service acknowledged
lost            of these, those that the index does not show at the end; must be 0
old_encodings   items at the end whose embedding is not the last network's; must be 0
deleted_found   answers with an item whose deletion was acknowledged before the query; must be 0
search_ms       median, 99th percentile and maximum of the time of a search
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import multiprocessing
import random
import shutil
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aladin_index.building.builder import build_index
from aladin_index.encode.source_items import ImageItem
from aladin_index.format.layout import NEW_GENERATION, PUBLISHING, UPGRADE, live_generation
from aladin_index.generations.reader import open_index
from aladin_index.settings import BuildSettings
from aladin_index.upgrade.run import upgrade_index
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.inference import encode_images, encode_texts
from benchmarks.lib.measuring import use_one_thread
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.service_process import ServiceProcess
from benchmarks.lib.small_collection import photo_fields, random_png, small_model, text_of_words

_FORK = multiprocessing.get_context("fork")
_SETTINGS = BuildSettings(batch_size=64, shard_items=128)
_PHOTO_PX = 32
_ASKING, _TEXTS, _CLIENTS = 20, 300, 2
# Sizes of the embeddings and tokens of the networks, which follow one another.
_SIZES = ((32, 32), (48, 40), (40, 24), (24, 48))
_NEAR, _NEAR_IN_FILES = 2e-3, 1e-4
_ASK_S, _CHANGE_S, _LOOK_S = 60.0, 0.1, 0.005
_LATE = ("writing the generation", "going live")

Vectors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class World:
    """An index, the networks that it is upgraded to, and what they make of everything.

    Attributes:
        index: Folder of the index.
        checkpoints: Checkpoints of the networks, the index's own first.
        vectors: Embeddings by each network, of texts and of photos by their ids.
        photos: All photos by their ids; those to add begin with "new", those to ask with "query".
        texts: Texts to ask with.
    """

    index: Path
    checkpoints: Sequence[Path]
    vectors: Sequence[Vectors]
    photos: dict[str, bytes]
    texts: Sequence[str]

    def named(self, kind: str) -> list[str]:
        """Return the ids of some photos."""
        return [name for name in self.photos if name.startswith(kind)]


def make_world(folder: Path, count: int) -> World:
    """Draw the photos, encode them by all networks, and build the index."""
    chance, random_words = np.random.default_rng(0), random.Random(0)
    texts = sorted({text_of_words(random_words) for _ in range(_TEXTS)})
    checkpoints = [folder / f"network-{number}" for number in range(len(_SIZES))]
    for checkpoint, sizes in zip(checkpoints, _SIZES, strict=True):
        save_checkpoint(checkpoint, small_model(*sizes, " ".join(texts)))
    kinds = {"photo": count, "new": count // 2, "query": _ASKING}
    names = [f"{kind} {number}" for kind, total in kinds.items() for number in range(total)]
    photos = {name: random_png(chance, _PHOTO_PX) for name in names}
    items: list[ImageItem] = []
    (folder / "photos").mkdir()
    for name in names[:count]:
        path = folder / "photos" / f"{name}.png"
        path.write_bytes(photos[name])
        items.append(ImageItem(id=name, path=path, uri=path.name))
    build_index(checkpoints[0], folder / "index", items, None, BuildSettings())
    vectors = [_vectors(checkpoint, texts, photos) for checkpoint in checkpoints]
    return World(folder / "index", checkpoints, vectors, photos, texts)


def _vectors(checkpoint: Path, texts: Sequence[str], photos: dict[str, bytes]) -> Vectors:
    """Encode everything by one network."""
    model = load_checkpoint(checkpoint).model
    found: Vectors = dict(zip(texts, encode_texts(model, texts).embedding, strict=True))
    names = [*photos]
    for start in range(0, len(names), _SETTINGS.batch_size):
        some = names[start : start + _SETTINGS.batch_size]
        pictures = [Image.open(io.BytesIO(photos[name])).convert("RGB") for name in some]
        inputs = [model.image.encoder.preprocess(picture) for picture in pictures]
        found.update(zip(some, encode_images(model, inputs).embedding, strict=True))
    return found


@dataclass
class Traffic:
    """Clients that search without a pause, and one that adds and deletes photos; and outcomes."""

    world: World
    port: int
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: Counter[str] = field(default_factory=Counter[str])
    added: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    milliseconds: list[float] = field(default_factory=list[float])
    unexpected: list[str] = field(default_factory=list[str])

    def run(self) -> list[threading.Thread]:
        """Start the clients."""
        work = [(self._search, (seed,)) for seed in range(_CLIENTS)]
        threads = [threading.Thread(target=target, args=seed) for target, seed in work]
        threads.append(threading.Thread(target=self._change))
        for thread in threads:
            thread.start()
        return threads

    def _search(self, seed: int) -> None:
        chance, connection = random.Random(seed), self._connect()
        asking = self.world.named("query")
        while not self.ended.is_set():
            query = chance.choice(asking if chance.random() < 0.1 else self.world.texts)
            fields = {"text": query}
            if query in self.world.photos:
                fields = {"image": base64.b64encode(self.world.photos[query]).decode()}
            with self.lock:
                gone = set(self.deleted)
            first, began_s = live_generation(self.world.index), time.perf_counter()
            status, body = self._ask(connection, "POST", "/v1/search/images", fields)
            took_ms = 1000 * (time.perf_counter() - began_s)
            last = live_generation(self.world.index)
            faults = ["failed"]
            if status == 200:
                faults = self._faults(query, json.loads(body), gone, range(first, last + 1))
            with self.lock:
                self.milliseconds.append(took_ms)
                self.counts.update(["queries", *faults])
                if faults:
                    self.unexpected.append(f"{faults} {status} {body.decode()[:300]}")

    def _faults(self, query: str, answer: dict[str, Any], gone: set[str], live: range) -> list[str]:
        """Return what is wrong with an answer."""
        vectors = self.world.vectors[(answer["generation"] - 1) % len(self.world.vectors)]
        expected = {hit["id"]: vectors[query] @ vectors[hit["id"]] for hit in answer["hits"]}
        found = {hit["id"]: hit["stages"]["match"]["score"] for hit in answer["hits"]}
        faults = {
            "other_model": any(abs(found[each] - expected[each]) > _NEAR for each in found),
            "other_time": answer["generation"] not in live,
            "deleted_found": not gone.isdisjoint(found),
        }
        return [name for name, is_so in faults.items() if is_so]

    def _change(self) -> None:
        """Add new photos, and delete photos of the index, in turn."""
        connection, path = self._connect(), "/v1/items/images"
        new, old = self.world.named("new"), self.world.named("photo")
        for added, deleted in zip(new, reversed(old), strict=False):
            if self.ended.wait(_CHANGE_S):
                return
            item = photo_fields(added, self.world.photos[added])
            status, body = self._ask(connection, "POST", path, item)
            gone = f"{path}/{urllib.parse.quote(deleted)}"
            gone_status, gone_body = self._ask(connection, "DELETE", gone)
            with self.lock:
                self.added += [added] if status == 201 else []
                self.deleted += [deleted] if gone_status == 200 else []
                for each, text in ((status, body), (gone_status, gone_body)):
                    if each not in (200, 201):
                        self.unexpected.append(f"a change: {each} {text.decode()[:300]}")

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_S)

    @staticmethod
    def _ask(
        connection: http.client.HTTPConnection, method: str, path: str, fields: Any = None
    ) -> tuple[int, bytes]:
        body = None if fields is None else json.dumps(fields)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()  # the next request opens it again
            return 0, repr(error).encode()


class Upgrades:
    """Upgrades in processes of their own, one after another, that can be killed.

    Attributes:
        killed_while: What upgrades were doing when they were killed.
        finished: Number of upgrades that came to their end.
    """

    def __init__(self, world: World, index: Path) -> None:
        """Start nothing yet; `index` is that of the world, or a copy."""
        self.killed_while: Counter[str] = Counter()
        self.finished = 0
        self._index, self._checkpoints = index, world.checkpoints

    def run(self, most_s: float | None = None, *, late: bool = False) -> None:
        """Run an upgrade, or go on with it.

        Args:
            most_s: Seconds after which it is killed, or None to let it end.
            late: Whether they count from the moment when all is encoded.
        """
        process = _FORK.Process(target=self._upgrade)
        process.start()
        while late and process.is_alive() and self._stage() not in _LATE:
            time.sleep(_LOOK_S)
        process.join(most_s)
        stage = self._stage()
        if process.is_alive():
            process.kill()
        process.join()
        if process.exitcode == 0:
            self.finished += 1
        elif process.exitcode == -9:
            self.killed_while[stage] += 1
        else:
            raise SystemExit("an upgrade failed by itself")

    def _upgrade(self) -> None:
        use_one_thread()  # a forked process has no other
        checkpoint = self._checkpoints[(self.finished + 1) % len(self._checkpoints)]
        upgrade_index(self._index, checkpoint, _SETTINGS)

    def _stage(self) -> str:
        """Describe what an upgrade is doing, judging by its files."""
        if (self._index / PUBLISHING).exists():
            return "going live"
        if (self._index / NEW_GENERATION).exists():
            return "writing the generation"
        return "encoding" if (self._index / UPGRADE).exists() else "starting or ending"


def measure(photos: int, kills: int) -> dict[str, Any]:
    """Upgrade a served index under kills.

    Args:
        photos: Number of photos of the index.
        kills: Number of upgrades to kill.
    """
    use_one_thread()
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as temporary:
        world = make_world(Path(temporary), photos)
        copy = Path(shutil.copytree(world.index, Path(temporary) / "copy"))
        began_s, alone = time.monotonic(), Upgrades(world, copy)
        alone.run(0, late=True)
        encode_s = time.monotonic() - began_s
        alone.run()
        whole_s = time.monotonic() - began_s
        upgrades = Upgrades(world, world.index)
        settings = {"ALADIN_QUERY_PRECISION": "float32"}
        with ServiceProcess(world.index, ["--workers", "2"], settings) as service:
            traffic = Traffic(world, service.port)
            threads = traffic.run()
            try:
                while (killed := upgrades.killed_while.total()) < kills:
                    late = killed >= kills // 2
                    most_s = whole_s - encode_s if late else encode_s
                    upgrades.run(chance.uniform(0, most_s), late=late)
                upgrades.run()
            finally:
                traffic.ended.set()
                for thread in threads:
                    thread.join()
            lost = _lost(service, traffic)
        return _figures(world, upgrades, traffic, lost)


def _lost(service: ServiceProcess, traffic: Traffic) -> list[str]:
    """Return acknowledged changes that the service does not show."""
    expected = [(each, 200) for each in traffic.added] + [(each, 404) for each in traffic.deleted]
    path = "/v1/items/images/"
    return [
        item_id
        for item_id, status in expected
        if service.ask("GET", path + urllib.parse.quote(item_id))[0] != status
    ]


def _figures(
    world: World, upgrades: Upgrades, traffic: Traffic, lost: Sequence[str]
) -> dict[str, Any]:
    vectors = world.vectors[upgrades.finished % len(world.vectors)]
    with open_index(world.index, encodes=False) as index:
        collection = index.collection("images")
        items = dict(collection.items.ids())
        found = collection.embeddings([*items.values()])
    expected = np.stack([vectors[item_id] for item_id in items])
    wrong = int((np.abs(found - expected).max(axis=1) > _NEAR_IN_FILES).sum())
    complete = (set(world.named("photo")) | set(traffic.added)) - set(traffic.deleted)
    counts, times = traffic.counts, np.array(traffic.milliseconds)
    names = ("queries", "failed", "other_model", "other_time", "deleted_found")
    return {
        **{name: counts[name] for name in names},
        "kills": upgrades.killed_while.total(),
        "killed_while": dict(upgrades.killed_while),
        "upgrades": upgrades.finished,
        "acknowledged": len(traffic.added) + len(traffic.deleted),
        "lost": len(lost) + len(complete - items.keys()),
        "old_encodings": wrong,
        "search_ms": [round(float(np.percentile(times, each)), 1) for each in (50, 99, 100)],
        "unexpected": traffic.unexpected[:10],
    }


def main() -> None:
    """Run the measurement, and print a table or JSON."""
    parser = figures_parser(__doc__, "200 photos, 3 kills")
    parser.add_argument("--photos", type=int, default=2000, help="photos of the index")
    parser.add_argument("--kills", type=int, default=20, help="upgrades to kill")
    options = parser.parse_args()
    size = (200, 3) if options.quick else (options.photos, options.kills)
    print_figures(measure(*size), as_json=options.json)


if __name__ == "__main__":
    main()
