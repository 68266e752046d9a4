"""A small collection of photos and texts, indexes of it, and collections of random vectors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aladin_index.ann.ann_index import build_ann
from aladin_index.ann.file import write_ann
from aladin_index.building.builder import build_index
from aladin_index.encode.encoded import ItemBatch
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.layout import ANN
from aladin_index.format.manifest import AnnEntry, CollectionEntry
from aladin_index.generations.collection_writer import CollectionSource, write_collection
from aladin_index.generations.reader import SearchIndex, open_collection, open_index
from aladin_index.generations.writer import GoingLive
from aladin_index.items.tables import StoredItem
from aladin_index.search.file_collection import StoredCollection
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_network.scoring.hub_correction import CORRECTION
from aladin_network.types import TARGETS, NullProgress, TokenDtype
from tests.index.corrections import correction_of
from tests.index.written import made_up, write_index

TEXTS = [
    "a small red circle above a striped blue square",
    "two dogs run",
    "a man rides a motorcycle in the street",
    "star",
    "the yellow star is left of a white triangle",
    "green grass",
    "a man",
    "two dogs run on the green grass",
]


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[ImageItem]:
    """23 photos of random pixels and sizes, with metadata."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    items: list[ImageItem] = []
    for number in range(23):
        width, height = random.integers(20, 60, 2)
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        path = folder / f"{number:02d}.png"
        Image.fromarray(pixels).save(path)
        items.append(
            ImageItem(
                id=f"photo {number}",
                path=path,
                uri=f"album/{number:02d}.png",
                text=f"caption of {number}" if number % 2 else None,
                metadata={"number": number, "parity": ["even", "odd"][number % 2]},
            )
        )
    return items


@pytest.fixture(scope="session")
def texts() -> list[TextItem]:
    """Sixteen texts of one to nine words, two for each of the first eight photos."""
    return [
        TextItem(
            id=f"text {number}",
            text=TEXTS[number % len(TEXTS)] + " circle" * (number // len(TEXTS)),
            metadata={"length": len(TEXTS[number % len(TEXTS)])},
            image_id=f"photo {number // 2}",
        )
        for number in range(16)
    ]


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may write to."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


@pytest.fixture(scope="session")
def corrected_checkpoint(
    tiny_checkpoint: Path, images: list[ImageItem], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """`tiny_checkpoint` with a hubness correction."""
    folder = tmp_path_factory.mktemp("corrected") / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    correction_of(folder, [item.path for item in images[:6]], 0.8).save(folder / CORRECTION)
    return folder


SMALL = BuildSettings(shard_items=5, batch_size=3)


@pytest.fixture(scope="session")
def published(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_checkpoint: Path,
    images: list[ImageItem],
    texts: list[TextItem],
) -> Path:
    """An index of all images and texts, float16; not to be written to."""
    out = tmp_path_factory.mktemp("index") / "index"
    build_index(tiny_checkpoint, out, images, texts, SMALL)
    return out


@pytest.fixture
def index_copy(published: Path, tmp_path: Path) -> Path:
    """A copy of `published` that a test may damage."""
    return Path(shutil.copytree(published, tmp_path / "index"))


@pytest.fixture(scope="session")
def search_index(published: Path) -> Iterator[SearchIndex]:
    """`published`, open."""
    with open_index(published) as index:
        yield index


@pytest.fixture(scope="session")
def searcher(search_index: SearchIndex) -> TwoStageSearcher:
    """Searches `published`."""
    return TwoStageSearcher(search_index)


MakeCollection = Callable[..., StoredCollection]


@pytest.fixture
def make_collection(tmp_path: Path) -> Iterator[MakeCollection]:
    """Return a function that writes and opens a collection with given embeddings and tokens."""
    collections: list[StoredCollection] = []

    def make(
        embeddings: np.ndarray,
        tokens: Sequence[np.ndarray] | None = None,
        *,
        factory: str = "Flat",
        search_width: int | None = None,
        oversample: float = 1.0,
        dtype: TokenDtype = "float16",
    ) -> StoredCollection:
        folder = tmp_path / f"generation {len(collections)}"
        count, dim = embeddings.shape
        if tokens is None:
            tokens = [np.zeros((1, 4), dtype=np.float32)] * count
        flat = np.concatenate(tokens).astype(np.float32)
        codec = TokenCodec.train(dtype, flat)
        items = [StoredItem(row, f"item {row}", *[None] * 6, metadata={}) for row in range(count)]
        lengths = np.array([len(each) for each in tokens])
        part = ItemBatch(items, embeddings, codec.pack(flat), lengths)
        source = CollectionSource(embedding_dim=dim, codec=codec, parts=[part])
        (folder / "images").mkdir(parents=True)
        write_collection(folder / "images", "images", source, None, None, NullProgress())
        write_ann(folder / "images" / ANN, build_ann(factory, embeddings, NullProgress()))
        entry = CollectionEntry(
            count=count,
            skipped=0,
            embedding_dim=dim,
            token_dim=flat.shape[1],
            token_count=len(flat),
            token_dtype=dtype,
            ann=AnnEntry(
                factory=factory,
                search_width=search_width,
                oversample=oversample,
                recall=1.0,
                recall_at=1,
                recall_queries=1,
            ),
        )
        collections.append(open_collection(folder, "images", entry))
        return collections[-1]

    yield make
    for collection in collections:
        collection.items.close()


MakeItems = Callable[..., ItemBatch]


@pytest.fixture(scope="session", name="made_up")
def _made_up() -> MakeItems:
    """`made_up`."""
    return made_up


@pytest.fixture(scope="session")
def write_made_up(tiny_checkpoint: Path) -> Callable[..., int]:
    """Returns a function that writes a generation of made-up items: ``write(root, images=...)``."""

    def write(
        root: Path,
        dtype: TokenDtype = "float16",
        *,
        going_live: GoingLive | None = None,
        **more: Any,
    ) -> int:
        collections = {target: more.pop(target) for target in TARGETS if target in more}
        return write_index(root, tiny_checkpoint, collections, dtype, going_live=going_live, **more)

    return write
