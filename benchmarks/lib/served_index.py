"""A synthetic index for benchmarks of the service, and queries taken from it.

The cost of a search depends on the sizes of the network and of the index, not on their contents.
The sizes here are those of a small deployment: a text encoder like MiniLM (6 layers of 384) or like
BERT base, which is ALADIN's own (12 layers of 768), MobileNetV2 for photos, 10,000 photos of 49
regions. The weights are random, the photos' encodings are those of `benchmarks.lib.synthetic`;
captions and picture files are the demo's, so that photos can be shown and evidence names words.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.encode.encoded import PackedBatch
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.reader import open_index
from aladin_index.generations.writer import NewGeneration, write_generation
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import photo_of
from aladin_index.settings import BuildSettings
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.store import codec_for
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.files import atomic_folder
from aladin_network.inference import encode_texts
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import DEFAULT_LIMITS
from aladin_network.types import TARGETS, Target
from aladin_training.demo.scenes import draw_data_set
from benchmarks.lib.small_collection import new_index, photo_row, random_model, text_row
from benchmarks.lib.synthetic import SyntheticPhotos
from benchmarks.lib.synthetic_sources import EMBEDDING_DIM, REGIONS, TOKEN_DIM, stand_in_source

# Relative to the folder in which the commands are started. The number changes with the content.
_FOLDER = Path("runs/benchmarks")
_NAME = "served-index-3"
_VOCABULARY, _PICTURE_PX, _TEXT_BATCH, _SAMPLE_PHOTOS = 4000, 384, 32, 1024
_MOST_TEXTS, _MOST_PHOTOS, _MOST_IDS = 2000, 64, 500


@dataclass(frozen=True, kw_only=True)
class ServedSize:
    """Size of a served index.

    Attributes:
        photos: Number of items in the image collection.
        pictures: Number of files shared by the photos, each with five captions, which are the items
            of the text collection.
        layers: Number of layers of the text encoder.
        width: Width of the text encoder.
    """

    photos: int = 10_000
    pictures: int = 400
    layers: int = 6
    width: int = 384

    @property
    def name(self) -> str:
        """Name of the folder."""
        return f"{_NAME}-{self.photos}-{self.pictures}-{self.layers}x{self.width}"


QUICK_SIZE = ServedSize(photos=1000, pictures=30, layers=2)
SIZES = {"minilm": ServedSize(), "bert-base": ServedSize(layers=12, width=768)}


def find_served_index(
    given: Path | None, *, quick: bool = False, text_encoder: str = "minilm"
) -> Path:
    """Return the index to serve, creating it if it is missing.

    Args:
        given: Index from the command line, or None for the synthetic one.
        quick: Use a smaller index, regardless of the text encoder.
        text_encoder: Text encoder whose size the stand-in has, a key of `SIZES`.
    """
    return given or make_served_index(_FOLDER, QUICK_SIZE if quick else SIZES[text_encoder])


def make_served_index(folder: Path, size: ServedSize) -> Path:
    """Make an index unless it exists; it is created completely or not at all.

    Args:
        folder: Parent folder of the index's folder.
        size: Size of the index.

    Returns:
        The index.
    """
    home = (folder / size.name).resolve()
    if not home.exists():
        with atomic_folder(home) as partial:
            _make(partial, home, size)
    return home / "index"


def _make(partial: Path, home: Path, size: ServedSize) -> None:
    data_file = draw_data_set(
        partial / "data", scenes=size.pictures, val_scenes=1, test_scenes=1, size_px=_PICTURE_PX
    )
    lines = [json.loads(line) for line in data_file.read_text(encoding="utf-8").splitlines()]
    model = real_size_model([caption for line in lines for caption in line["captions"]], size)
    root = partial / "index"
    root.mkdir()
    with new_index(root, model) as entry:
        settings = BuildSettings()
        collections: dict[Target, CollectionSource] = {
            "images": _photo_collection(lines, home / "data", size.photos, settings),
            "texts": _text_collection(lines, model, settings),
        }
        write_generation(
            root,
            NewGeneration(
                collections=collections, model=entry, settings=settings, fingerprint=size.name
            ),
        )


def real_size_model(captions: Sequence[str], size: ServedSize, photo_px: int = 224) -> AladinModel:
    """Make a network of random weights, the same at every call.

    Args:
        captions: Captions that its vocabulary is learnt from.
        size: Size that gives the layers and the width of the text encoder.
        photo_px: Collection of the photos that the network takes.
    """
    trunk = TrunkConfig(width=256, layers=1, heads=4, feedforward=512)
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(
            architecture={"model_type": "mobilenet_v2"},
            preprocessing=ImagePreprocessing(height_px=photo_px, width_px=photo_px),
        ),
        text_encoder=TextEncoderConfig(
            architecture={
                "model_type": "bert",
                "hidden_size": size.width,
                "num_hidden_layers": size.layers,
                "num_attention_heads": 12,
                "intermediate_size": 4 * size.width,
            },
        ),
        image_tower=TowerConfig(trunk=trunk, aggregate="mean", positions=True),
        text_tower=TowerConfig(trunk=trunk),
        alignment=AlignmentHeadConfig(dim=TOKEN_DIM),
        matching=MatchingHeadConfig(
            layers=0, heads=4, pooling=("first", "mean", "max"), dim=EMBEDDING_DIM
        ),
    )
    return random_model(config, captions, _VOCABULARY)


def _photo_collection(
    lines: Sequence[dict[str, Any]], data: Path, count: int, settings: BuildSettings
) -> CollectionSource:
    photos = SyntheticPhotos(stand_in_source())
    first = next(iter(photos.photos(min(count, _SAMPLE_PHOTOS))))
    codec = codec_for(settings.token_dtype, [first.tokens.reshape(-1, TOKEN_DIM)])
    return CollectionSource(
        embedding_dim=EMBEDDING_DIM,
        codec=codec,
        parts=_photo_parts(photos, count, codec, lines, data),
    )


def _photo_parts(
    photos: SyntheticPhotos,
    count: int,
    codec: TokenCodec,
    lines: Sequence[dict[str, Any]],
    data: Path,
) -> Iterator[PackedBatch]:
    row = 0
    for batch in photos.photos(count):
        items: list[StoredItem] = []
        for number in range(row, row + len(batch.embeddings)):
            line, year = lines[number % len(lines)], 2000 + number % 20
            date = f"{year}-{1 + number // 20 % 12:02}-{1 + number // 240 % 28:02}T10:00:00"
            items.append(
                photo_row(
                    number,
                    f"photo-{number}",
                    {"year": year, "number": number, "taken_at": date},
                    uri=f"album/{number}.jpg",
                    path=str(data / line["image"]),
                    text=line["captions"][0],
                    size_px=(_PICTURE_PX, _PICTURE_PX),
                )
            )
        lengths = np.full(len(items), REGIONS, dtype=np.int64)
        packed = codec.pack(batch.tokens.reshape(-1, TOKEN_DIM))
        yield PackedBatch(items, batch.embeddings, packed, lengths)
        row += len(items)


def _text_collection(
    lines: Sequence[dict[str, Any]], model: AladinModel, settings: BuildSettings
) -> CollectionSource:
    captions = [
        (place, caption) for place, line in enumerate(lines) for caption in line["captions"]
    ]
    embeddings: list[NDArray[np.float32]] = []
    words: list[NDArray[np.float32]] = []
    for start in range(0, len(captions), _TEXT_BATCH):
        texts = [caption for _, caption in captions[start : start + _TEXT_BATCH]]
        encoding = encode_texts(model, texts)
        embeddings.append(encoding.embedding)
        words += [encoding.item_tokens(row) for row in range(encoding.size)]
    tokens = np.concatenate(words)
    codec = codec_for(settings.token_dtype, [tokens])
    items = [
        text_row(number, caption, f"photo-{place}", {"number": number})
        for number, (place, caption) in enumerate(captions)
    ]
    lengths = np.array([len(each) for each in words], dtype=np.int64)
    part = PackedBatch(items, np.concatenate(embeddings), codec.pack(tokens), lengths)
    return CollectionSource(embedding_dim=EMBEDDING_DIM, codec=codec, parts=[part])


@dataclass(frozen=True, kw_only=True)
class ServiceQueries:
    """Queries for an index.

    Attributes:
        texts: Captions of the index's photos, or its texts.
        photos: Picture files of the index's images.
        ids: IDs of its items by collection; a text's ID finds images, an image's ID texts.
    """

    texts: list[str]
    photos: list[bytes]
    ids: dict[Target, list[str]]

    def new_texts(self, count: int, seed: int = 0) -> list[str]:
        """Make texts of the usual length that have not been used as queries before.

        Half of one caption is put before half of another: a remembered encoding helps none of
        them.
        """
        chance = random.Random(seed)
        texts: list[str] = []
        for _ in range(count):
            first, second = (chance.choice(self.texts).split() for _ in range(2))
            start, end = first[: -(-len(first) // 2)], second[len(second) // 2 :]
            texts.append(" ".join([*start, *end]))
        return texts


def read_queries(path: Path) -> ServiceQueries:
    """Read queries from an index of photos, and texts if it has any.

    Raises:
        SearchIndexError: If there is no such index, or it is damaged.
        SystemExit: If the index has no captions and no texts, or all its picture files are missing.
    """
    texts: list[str] = []
    photos: list[bytes] = []
    ids: dict[Target, list[str]] = {}
    with closing(open_index(path)) as index:
        for target in TARGETS:
            if target not in index.manifest.targets:
                continue
            collection = index.collection(target)
            items = collection.items.by_rows(range(min(_MOST_TEXTS, collection.entry.count)))
            texts += [item.text for item in items if item.text]
            ids[target] = [item.id for item in items[:_MOST_IDS]]
            for item in items if target == "images" else []:
                photo = photo_of(path, item)
                if photo is not None and len(photos) < _MOST_PHOTOS and photo.path.exists():
                    photos.append(photo.read(DEFAULT_LIMITS.max_bytes))
    if not texts or not photos:
        raise SystemExit(f"{path}: expected captions and picture files to ask with")
    return ServiceQueries(texts=texts, photos=photos, ids=ids)


def main() -> None:
    """Make the index and print its location."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller one")
    parser.add_argument("--text-encoder", choices=list(SIZES), default="minilm")
    options = parser.parse_args()
    print(find_served_index(None, quick=options.quick, text_encoder=options.text_encoder))


if __name__ == "__main__":
    main()
