"""Layout and manifest of a folder of encodings.

Clip-retrieval's inference writes this layout, and its index reads it; row i of one file of a part
belongs to row i of the others:

FOLDER/
  img_emb/img_emb_0.npy              (rows, d_match) float32 or float16, L2-normalised
  text_emb/text_emb_0.npy            the same of the captions, where there is one for each photo
  metadata/metadata_0.parquet        image_path, caption and any further columns

To which this project adds:

  manifest.json                      model, sizes, and the sha256 of every file
  img_tokens/img_tokens_0.npy        (tokens, d_align) of all items, one after the other, float16,
                                     or in another of the forms of `aladin_index.tokens.codec` with
                                     img_scales_0.npy, img_centroid_ids_0.npy, img_centroids.npy
  img_tokens/img_lengths_0.npy       (rows,) int64, number of tokens of each item
  texts/text_emb, texts/metadata     texts that are not one for each photo, with text_tokens beside
  photos/                            photos that were uploaded, and that the index itself kept

An export has its photos in FOLDER and its texts in FOLDER/texts, for they differ in number: each
of the two is a folder that clip-retrieval reads, with metadata that belongs to its vectors.

The manifest records the model that computed the encodings, and the checksums of the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from aladin_index.format.layout import parse_versioned
from aladin_index.format.manifest import EncodingsManifest
from aladin_index.tokens.codec import CODED, TokenCodec
from aladin_network.config import dump_config
from aladin_network.errors import DataError, IndexCorruptError, IndexMismatchError
from aladin_network.files import FileEntry, describe_files, write_json
from aladin_network.types import Target

MANIFEST = "manifest.json"
METADATA = "metadata"
TEXTS_FOLDER = "texts"
_PREFIX: dict[Target, str] = {"images": "img", "texts": "text"}
# File of each array of `PackedTokens`.
_ARRAYS = {"values": "tokens", "scales": "scales", "centroid_ids": "centroid_ids"}

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CollectionLayout:
    """Files of one collection, whose folders are in `folder`."""

    folder: Path
    target: Target

    @property
    def prefix(self) -> str:
        return _PREFIX[self.target]

    @property
    def folders(self) -> list[Path]:
        return [self.embeddings("").parent, self.metadata("").parent, self.tokens]

    @property
    def tokens(self) -> Path:
        return self.folder / f"{self.prefix}_tokens"

    def embeddings(self, part: str) -> Path:
        return self.folder / f"{self.prefix}_emb" / f"{self.prefix}_emb_{part}.npy"

    def metadata(self, part: str) -> Path:
        return self.folder / METADATA / f"{METADATA}_{part}.parquet"

    def lengths(self, part: str) -> Path:
        """Return the file of the token counts of a part's items."""
        return self.tokens / f"{self.prefix}_lengths_{part}.npy"

    def token_array(self, field: str, part: str) -> Path:
        return self.tokens / f"{self.prefix}_{_ARRAYS[field]}_{part}.npy"

    @property
    def centroids(self) -> Path:
        return self.tokens / f"{self.prefix}_centroids.npy"

    def parts(self) -> list[str]:
        """List the parts by the suffixes of their file names, in numerical order."""
        folder = self.embeddings("").parent
        pattern = re.compile(rf"{self.prefix}_emb_(\d+)\.npy")
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        parts = [found.group(1) for name in names if (found := pattern.fullmatch(name))]
        parts.sort(key=int)
        for part, following in pairwise(parts):
            if int(part) == int(following):
                message = f"parts {part} and {following} have the same number"
                raise DataError(folder, None, message)
        return parts

    def files(self, part: str, codec: TokenCodec | None) -> list[Path]:
        files = [self.embeddings(part), self.metadata(part)]
        if codec is not None:
            files.append(self.lengths(part))
            files += [self.token_array(array.field, part) for array in codec.arrays]
            if codec.dtype == CODED:
                files.append(self.centroids)
        return files


def part_names(count: int) -> list[str]:
    """Return the suffixes of some parts, zero-padded so that they sort as text."""
    width = len(str(max(count - 1, 0)))
    return [f"{number:0{width}d}" for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class ExchangeManifest(EncodingsManifest):
    """A folder's ``manifest.json``.

    Attributes:
        model_id: SHA-256 of the weights of the model that made the encodings.
    """

    model_id: str


def write_exchange_manifest(folder: Path, manifest: ExchangeManifest) -> None:
    write_json(folder / MANIFEST, dump_config(manifest))


def read_exchange_manifest(folder: Path) -> ExchangeManifest | None:
    """Read a folder's manifest, or None if missing, as in the output of clip-retrieval."""
    path, what = folder / MANIFEST, "not a manifest of encodings"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(path, None, f"cannot be read ({error.strerror})") from error
    try:
        return parse_versioned(ExchangeManifest, content, path, SCHEMA_VERSION, what)
    except IndexCorruptError as error:
        raise DataError(path, None, error.reason) from error


def check_files(folder: Path, manifest: ExchangeManifest, files: dict[str, FileEntry]) -> None:
    for name in sorted(manifest.files.keys() | files.keys()):
        expected, found = manifest.files.get(name), files.get(name)
        if expected != found:
            raise IndexMismatchError(f"{folder / name}: sha256", _digest(expected), _digest(found))


def describe_paths(folder: Path, paths: Iterable[Path]) -> dict[str, FileEntry]:
    """Measure and hash files below a folder."""
    return describe_files(folder, {path.relative_to(folder).as_posix() for path in paths})


def _digest(entry: FileEntry | None) -> str:
    return "no such file" if entry is None else entry.sha256
