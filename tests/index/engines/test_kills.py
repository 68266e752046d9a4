"""The server is killed in the middle of reads and writes, and started again on its data."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from aladin_index.engines.milvus import EngineClient, EngineOptions, EngineQuery
from aladin_index.format.layout import EngineLocation
from aladin_index.items.filters import parse_filter
from aladin_index.open import connect
from aladin_network.errors import EngineUnavailableError
from benchmarks.lib.milvus_server import MilvusServer
from tests.index.engines.made_up import EMBEDDING_DIM, codec_of, entry, schema_of, unit
from tests.milvus_needed import STARTS_MILVUS

pytestmark = STARTS_MILVUS

BUILT = 1500
_LONGEST_S = 120.0
# After a crash this server reads its log again, 100 writes a second: more would pile up.
_WRITE_S = 0.1


@pytest.fixture
def server(tmp_path: Path) -> Generator[MilvusServer]:
    """A server of its own: others would miss the one of all tests."""
    with MilvusServer(tmp_path / "milvus") as server:
        yield server


class Load:
    """Searches and writes all the time, in threads; an outage is no failure, a wrong answer is."""

    def __init__(self, engine: EngineClient) -> None:
        self.engine = engine
        self.stopping = threading.Event()
        self.wrong: list[str] = []
        self.right = 0
        self.refused = 0
        # What was acknowledged: there, or not; what was not may be either.
        self.acknowledged: dict[int, bool] = {}
        self._codec = codec_of("int8")
        self._embeddings = np.array([entry(n, self._codec).embedding for n in range(BUILT)])
        self._threads = [threading.Thread(target=run) for run in (self._search, self._write)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for_answers(self) -> None:
        """Return when a search has been answered rightly from now on."""
        before, deadline_s = self.right, time.monotonic() + _LONGEST_S
        while self.right <= before + 1:
            assert time.monotonic() < deadline_s, "searches are not answered again"
            time.sleep(0.05)

    def _search(self) -> None:
        random, built = np.random.default_rng(5), parse_filter({"number": {"lt": BUILT}})
        while not self.stopping.is_set():
            query = unit(random, EMBEDDING_DIM)
            asked = EngineQuery(
                generation=1, target="images", embedding=query, count=10, filter=built
            )
            try:
                hits = self.engine.search(asked)
            except EngineUnavailableError:
                self.refused += 1
                time.sleep(0.05)
                continue
            best = np.argsort(-(self._embeddings @ query))[:10].tolist()
            if [hit.entry.item.row for hit in hits] == best:
                self.right += 1
            else:
                self.wrong.append(f"expected {best}, got {hits}")

    def _write(self) -> None:
        """Add an item, and remove every third."""
        number = BUILT
        while not self.stopping.is_set():
            item = entry(number, self._codec)
            try:
                self.engine.upsert(1, "images", [item])
                self.acknowledged[number] = True
                if number % 3 == 0:
                    # Until it is acknowledged, it may be either.
                    del self.acknowledged[number]
                    self.engine.delete(1, "images", [item.item.id])
                    self.acknowledged[number] = False
            except EngineUnavailableError:
                pass
            number += 1
            time.sleep(_WRITE_S)


def test_no_wrong_answer_and_nothing_lost(server: MilvusServer) -> None:
    location = EngineLocation(url=server.url, name="kills", index="flat")
    codec = codec_of("int8")
    with closing(connect(location, EngineOptions(timeout_s=4, retries=2))) as engine:
        assert isinstance(engine, EngineClient)
        engine.write_record(1, {"manifest": b"kept"})
        schema = schema_of(codec, BUILT)
        engine.create_collection(1, "images", schema)
        engine.upsert(1, "images", [entry(number, codec) for number in range(BUILT)])
        engine.open_collection(1, "images")
        engine.make_live(1)
        load = Load(engine)
        load.start()
        try:
            for _ in range(2):
                load.wait_for_answers()
                server.kill()
                with pytest.raises(EngineUnavailableError):
                    engine.check_health()
                server.start()
            load.wait_for_answers()
        finally:
            load.stop()

        assert load.wrong == []
        assert load.refused > 0
        assert engine.live_generation() == 1
        assert engine.read_record(1) == {"manifest": b"kept"}
        ids = {entry(number, codec).item.id: there for number, there in load.acknowledged.items()}
        found = {each.item.id for each in engine.fetch(1, "images", list(ids))}
        assert len(ids) > 10
        assert found == {item_id for item_id, there in ids.items() if there}
