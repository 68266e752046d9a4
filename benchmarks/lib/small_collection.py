"""Small collections: random photos and texts, untrained networks, and indexes made of them.

The smallest network has a few thousand parameters: its collections are indexed in less than a
second.
"""

from __future__ import annotations

import base64
import io
import random
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.disk import disk_errors, only_builder
from aladin_index.format.manifest import ModelEntry
from aladin_index.generations.writer import describe_model, install_model
from aladin_index.items.tables import StoredItem
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
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
from aladin_network.encoders.registry import text_encoder_class
from aladin_network.model import AladinModel
from aladin_network.scoring.encoding import Encoding

_WORDS = ["a", "red", "green", "blue", "dog", "bird", "boat", "runs", "flies", "by", "the", "sea"]
_PHOTO_PX = 64


def small_model(
    embedding_dim: int, token_dim: int, words: str = "two dogs run on the green grass"
) -> AladinModel:
    """Make a network whose encodings have these sizes, the same at every call.

    Args:
        embedding_dim: Size of an embedding.
        token_dim: Size of a token.
        words: Words that its tokenizer knows.
    """
    trunk = TrunkConfig(width=16, layers=1, heads=2, feedforward=32)
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(
            architecture={
                "model_type": "vit",
                "hidden_size": 24,
                "image_size": 32,
                "patch_size": 8,
                **layers,
            },
            preprocessing=ImagePreprocessing(height_px=32, width_px=32),
        ),
        text_encoder=TextEncoderConfig(
            architecture={
                "model_type": "bert",
                "hidden_size": 20,
                "max_position_embeddings": 64,
                **layers,
            },
            max_tokens=32,
        ),
        image_tower=TowerConfig(trunk=trunk),
        text_tower=TowerConfig(trunk=trunk),
        alignment=AlignmentHeadConfig(dim=token_dim),
        matching=MatchingHeadConfig(layers=1, heads=2, dim=embedding_dim),
    )
    return random_model(config, [words])


def random_model(
    config: ModelConfig, captions: Sequence[str], vocabulary: int = 400
) -> AladinModel:
    """Make an untrained network, the same at every call.

    Args:
        config: Configuration of the network.
        captions: Captions that its vocabulary is learnt from.
        vocabulary: Maximum size of the vocabulary.
    """
    torch.manual_seed(0)
    tokenizer = text_encoder_class(config).learn_tokenizer(captions, vocabulary)
    return AladinModel.create(config, tokenizer).eval()


def save_small_network(folder: Path) -> None:
    """Write the checkpoint of a network of some thousand random weights."""
    save_checkpoint(folder, small_model(16, 16, " ".join(_WORDS)))


def write_photos(folder: Path, count: int) -> list[ImageItem]:
    """Write photos of random pixels, one of them broken, and describe them."""
    folder.mkdir()
    random = np.random.default_rng(0)
    items: list[ImageItem] = []
    for number in range(count):
        path = folder / f"{number:04d}.png"
        path.write_bytes(random_png(random, _PHOTO_PX))
        metadata = {"number": number, "parity": ("even", "odd")[number % 2], "tags": ["a", "b"]}
        items.append(ImageItem(id=f"photo {number}", path=path, uri=path.name, metadata=metadata))
    items[count // 2].path.write_bytes(b"broken")
    return items


def random_png(random: np.random.Generator, size_px: int) -> bytes:
    """Make the file of a square photo of random pixels, which cannot be compressed.

    Args:
        random: Generator that the pixels are drawn with.
        size_px: Width and height.
    """
    pixels = random.integers(0, 256, (size_px, size_px, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    return file.getvalue()


def photo_fields(item_id: str, photo: bytes) -> dict[str, str]:
    """Return the JSON body of a request that adds a photo to an index."""
    return {"id": item_id, "image": base64.b64encode(photo).decode()}


def make_texts(count: int) -> list[TextItem]:
    """Make texts of one to eight words."""
    random = np.random.default_rng(1)
    return [
        TextItem(id=f"text {number}", text=" ".join(random.choice(_WORDS, 1 + number % 8)))
        for number in range(count)
    ]


def text_of_words(chance: random.Random) -> str:
    """Draw a text of two to eight words."""
    return " ".join(chance.choices(_WORDS, k=chance.randint(2, 8)))


@contextmanager
def new_index(root: Path, network: AladinModel) -> Generator[ModelEntry]:
    """Lock the folder of a new index and install its network; generations are written inside.

    Args:
        root: Folder of the index; new.
        network: Network of the index.

    Yields:
        Description of the network for manifests.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        disk_errors(root),
        only_builder(root),
    ):
        checkpoint = Path(folder) / "checkpoint"
        save_checkpoint(checkpoint, network)
        entry = describe_model(checkpoint, load_checkpoint(checkpoint).model_id)
        install_model(root, checkpoint, entry)
        yield entry


def photo_row(
    row: int,
    item_id: str,
    metadata: dict[str, Any],
    *,
    uri: str | None = None,
    path: str | None = None,
    text: str | None = None,
    size_px: tuple[int, int] = (32, 32),
) -> StoredItem:
    """Return the stored data of a photo, without its encodings.

    Args:
        row: Position of the photo inside the generation.
        item_id: ID of the photo.
        metadata: Metadata of the photo.
        uri: URI of the photo, or None for its ID.
        path: Path of its file, or None if it has none.
        text: Caption, or None if it has none.
        size_px: Width and height.
    """
    return StoredItem(
        row=row,
        id=item_id,
        uri=uri or item_id,
        path=path,
        text=text,
        image_id=None,
        width_px=size_px[0],
        height_px=size_px[1],
        metadata=metadata,
    )


def text_row(row: int, text: str, image_id: str, metadata: dict[str, Any]) -> StoredItem:
    """Return the stored data of a photo's caption, without its encodings."""
    return StoredItem(
        row=row,
        id=f"text-{row}",
        uri=None,
        path=None,
        text=text,
        image_id=image_id,
        width_px=None,
        height_px=None,
        metadata=metadata,
    )


def text_encoding(embedding: NDArray[np.float32], words: NDArray[np.float32]) -> Encoding:
    """Return the encoding of one text.

    Args:
        embedding: (d_match,) L2-normalised.
        words: (words, d_align) L2-normalised.
    """
    return Encoding.of_item(embedding, words)


def unit_rows(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return vectors (..., dim) L2-normalised, as float32."""
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit.astype(np.float32, copy=False)


def folder_content(folder: Path) -> dict[str, bytes]:
    """Read all files below a folder, by their paths from it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def folder_bytes(folder: Path) -> int:
    """Return the total size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
