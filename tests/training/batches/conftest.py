"""Tars of numbered photos, planned and streamed, whose encoders let a test read the numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from PIL import Image

from aladin_network.encoders.base import TextBatch
from aladin_network.types import NullProgress
from aladin_training.batches.batch import Batch
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.inputs import NetworkInputs, ReadPhotos, TokenisedTexts
from aladin_training.batches.items import usable_photos
from aladin_training.batches.plan import ShortTexts
from aladin_training.data import read_records
from aladin_training.streaming.streamed_batches import PhotoStream
from aladin_training.streaming.tar_stream import open_stream


class RedOfPhoto:
    """An image encoder whose input is the red of a photo's left and right end."""

    def preprocess(self, photo: Image.Image) -> torch.Tensor:
        ends = [photo.getpixel((column, 0)) for column in (0, photo.width - 1)]
        return torch.tensor([end[0] for end in ends])  # type: ignore[index]

    def collate(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.stack(list(inputs))


class NumbersOfCaption:
    """A text encoder whose tokens are the numbers in a caption."""

    def preprocess(self, texts: Sequence[str], *, truncate: bool = False) -> TextBatch:
        assert truncate
        ids = torch.tensor(
            [[int(word) for word in text.split() if word.isdigit()] for text in texts]
        )
        return TextBatch(ids, torch.ones_like(ids, dtype=torch.bool), torch.ones_like(ids).bool())

    def count_too_long(self, texts: Sequence[str]) -> int:
        return sum("long" in text for text in texts)


class Seen(NamedTuple):
    """A batch in plain numbers; of each caption the numbers of its photo and of itself."""

    photos: list[int]
    captions: list[tuple[int, ...]]
    negatives: list[list[bool]]


def seen(batch: Batch) -> Seen:
    assert isinstance(batch.images, torch.Tensor) and isinstance(batch.texts, TextBatch)
    captions = [tuple(row) for row in batch.texts.ids.tolist()]
    return Seen(batch.images[:, 0].tolist(), captions, batch.negatives.tolist())


@pytest.fixture
def numbered_tars(
    write_tar: Callable[..., Path], picture: Callable[[int], bytes]
) -> Callable[..., Path]:
    """Write tars of so many photos each; photo 7 is red by 7 and has two captions "7 0", "7 1"."""

    def write(counts: Sequence[int], folder: str = "tars") -> Path:
        number = 0
        for shard, count in enumerate(counts):
            members: list[tuple[str, bytes]] = []
            for _ in range(count):
                members.append((f"{number:05d}.png", picture(number)))
                members.append(
                    (f"{number:05d}.txt", f"photo {number} 0\nphoto {number} 1".encode())
                )
                number += 1
            path = write_tar(f"{folder}/{shard:05d}.tar", members)
        return path.parent

    return write


@pytest.fixture
def write_samples(write_tar: Callable[..., Path]) -> Callable[..., Path]:
    """Write one tar of photos by name, each with its captions; returns its folder."""

    def write(photos: Mapping[str, tuple[bytes, str]], name: str = "samples/0.tar") -> Path:
        members: list[tuple[str, bytes]] = []
        for key, (photo, captions) in photos.items():
            members += [(f"{key}.png", photo), (f"{key}.txt", captions.encode())]
        return write_tar(name, members).parent

    return write


@pytest.fixture
def open_photos(tmp_path: Path) -> Callable[..., PhotoStream]:
    """Open tars as a stage reads them: ``open_photos(source, shuffle=8, views=("",))``."""

    def open_them(
        source: Path, shuffle: int = 8, split: str | None = None, views: tuple[str, ...] = ("",)
    ) -> PhotoStream:
        stream = open_stream(source, split, tmp_path / "cache", NullProgress())
        encoders: Any = (RedOfPhoto(), NumbersOfCaption())
        return PhotoStream(stream, *encoders, views, shuffle)

    return open_them


@pytest.fixture
def open_shards(
    write_samples: Callable[..., Path],
    picture: Callable[[int], bytes],
    open_photos: Callable[..., PhotoStream],
) -> Callable[..., PhotoStream]:
    """Open tars of photos by number, each with its captions; some are damaged or miscounted."""

    def open_them(
        shards: Sequence[Mapping[int, str]],
        successes: Sequence[int] = (),
        damaged: Sequence[int] = (),
    ) -> PhotoStream:
        for place, captions in enumerate(shards):
            photos = {
                str(n): (b"no picture" if n in damaged else picture(n), caption)
                for n, caption in captions.items()
            }
            folder = write_samples(photos, f"shards/{place:05d}.tar")
            if successes:
                stats = json.dumps({"successes": successes[place]})
                (folder / f"{place:05d}_stats.json").write_text(stats)
        return open_photos(folder)

    return open_them


@pytest.fixture
def open_pairs() -> Callable[..., PairDataset]:
    """Read tars as a data set whose photos are read in any order: ``open_pairs(source)``."""

    def open_them(
        source: Path, views: tuple[str, ...] = ("",), short: bool = False, texts: Any = None
    ) -> PairDataset:
        records = read_records(source)
        items, _ = usable_photos([each.photo for each in records], views, None, NullProgress())
        short_texts = ShortTexts(records) if short else None
        captions = [caption for record in records for caption in record.captions]
        captions += short_texts.texts if short_texts else []
        encoders: Any = (RedOfPhoto(), texts or NumbersOfCaption())
        inputs = NetworkInputs(
            ReadPhotos(encoders[0], items), TokenisedTexts(encoders[1], captions)
        )
        store: Any = SimpleNamespace(unencoded=inputs)
        return PairDataset(store, records, len(views), short_texts)

    return open_them
