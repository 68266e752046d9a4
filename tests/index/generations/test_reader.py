import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aladin_index.encode.encoded import ItemBatch
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.errors import (
    IndexMismatchError,
    SearchIndexError,
)
from tests.index.searching import run_search


def test_another_model_is_refused(index_copy: Path, tiny_checkpoint: Path) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    next(model.parameters()).data += 0.5
    shutil.rmtree(index_copy / "model")
    save_checkpoint(index_copy / "model", model)
    with pytest.raises(SearchIndexError, match="model"):
        open_index(index_copy)
    other = load_checkpoint(index_copy / "model")
    shutil.rmtree(index_copy / "model")
    shutil.copytree(tiny_checkpoint, index_copy / "model")
    with pytest.raises(IndexMismatchError, match="model: expected"):
        open_index(index_copy, checkpoint=other)


def test_readers_see_the_old_generation_or_the_new_one(
    tmp_path: Path,
    tiny_checkpoint: Path,
    made_up: Callable[..., ItemBatch],
    write_made_up: Callable[..., int],
) -> None:
    """Readers open and search all the while that generations of different sizes are published."""
    out = tmp_path / "index"
    sizes = {generation: 3 * generation for generation in range(1, 6)}
    ids = [f"photo {number}" for number in range(15)]
    write_made_up(out, images=made_up(ids[:3]))
    checkpoint = load_checkpoint(tiny_checkpoint)
    seen: set[int] = set()
    faults: list[object] = []
    done = threading.Event()

    def read() -> None:
        last = 0
        while not done.is_set() or last < 5:
            try:
                with open_index(out, checkpoint=checkpoint) as index:
                    searcher = TwoStageSearcher(index)
                    query, modality = searcher.stored_query("photo 1")[:2]
                    hits = run_search(searcher, query, modality, "images", k=99).hits
                    if len(hits) != sizes[index.generation] or index.generation < last:
                        faults.append((index.generation, len(hits), last))
                        return
                    last = index.generation
                    seen.add(last)
            except Exception as error:
                faults.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    while 1 not in seen and not faults:
        time.sleep(0.01)
    for generation in range(2, 6):
        write_made_up(out, images=made_up(ids[: sizes[generation]]))
    done.set()
    for thread in threads:
        thread.join(timeout=30)
    assert faults == []
    assert {1, 5} <= seen
