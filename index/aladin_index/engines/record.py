"""A generation in a vector database: record, items and tokens as bytes and text.

The record is a set of small named byte strings: the manifest, and the codebooks of the tokens.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.engines.client import EngineClient
from aladin_index.format.manifest import SCHEMA_VERSION, Manifest
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import PackedTokens, TokenCodec
from aladin_index.tokens.quantisation import ErrorFeedback
from aladin_network.config import dump_config, parse_config
from aladin_network.errors import (
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
    ShapeError,
)
from aladin_network.types import Target

# Names of the pieces; the first one marks a generation as complete.
MANIFEST, SOURCE, CHANGED = "manifest.json", "source.json", "changed"


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationRecord:
    """Record of a complete generation.

    Attributes:
        manifest: Manifest of the generation; it lists no files.
        codecs: Codec of each collection's tokens, with the data required to add items.
        source: Identity of what was pushed, see `aladin_index.engines.push_files`.
        changed: Whether items were added or removed since the push; set before the first change is
            made.
    """

    manifest: Manifest
    codecs: Mapping[Target, TokenCodec]
    source: bytes
    changed: bool = False

    def pieces(self) -> dict[str, bytes]:
        """Return the record in the form stored in a vector database."""
        data = json.dumps(dump_config(self.manifest), ensure_ascii=False)
        pieces = {MANIFEST: data.encode("utf-8"), SOURCE: self.source}
        for target, codec in self.codecs.items():
            if codec.centroids is not None:
                pieces[_centroids(target)] = _npy(codec.centroids)
            if codec.feedback is not None:
                pieces[_feedback(target)] = _npy(np.stack(codec.feedback))
        return pieces | ({CHANGED: b"1"} if self.changed else {})

    def with_changes(self) -> GenerationRecord:
        """Return the record with the mark that the generation is about to be changed."""
        return replace(self, changed=True)

    @classmethod
    def read(cls, pieces: Mapping[str, bytes], where: str) -> GenerationRecord:
        """Deserialise the result of `pieces`.

        Args:
            pieces: Pieces of a complete generation.
            where: Name of the generation in error messages.

        Raises:
            IndexMismatchError: If the schema version differs.
            IndexCorruptError: If the pieces are not such a record.
        """
        try:
            manifest = _manifest(pieces[MANIFEST], where)
            codecs: dict[Target, TokenCodec] = {}
            for target, entry in manifest.sides.items():
                centroids = _array(pieces, _centroids(target))
                feedback = _array(pieces, _feedback(target))
                codecs[target] = TokenCodec(
                    entry.token_dtype,
                    entry.token_dim,
                    centroids,
                    None if feedback is None else ErrorFeedback(*feedback),
                )
            return cls(
                manifest=manifest,
                codecs=codecs,
                source=pieces[SOURCE],
                changed=CHANGED in pieces,
            )
        except KeyError as error:
            raise IndexCorruptError(where, f"its record has no {error}") from error
        except (ValueError, TypeError, EOFError, ConfigError) as error:
            raise IndexCorruptError(where, f"its record cannot be read ({error})") from error


def is_whole(pieces: Mapping[str, bytes] | None) -> bool:
    """Whether a generation with this record is complete."""
    return pieces is not None and MANIFEST in pieces


def _manifest(content: bytes, where: str) -> Manifest:
    data: Any = json.loads(content)
    version = data["schema_version"]
    if version != SCHEMA_VERSION:
        raise IndexMismatchError(f"{where}: schema version", SCHEMA_VERSION, version)
    return parse_config(Manifest, data, MANIFEST)


def _centroids(target: Target) -> str:
    return f"{target}.centroids.npy"


def _feedback(target: Target) -> str:
    return f"{target}.feedback.npy"


def _npy(array: NDArray[np.float32]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _array(pieces: Mapping[str, bytes], name: str) -> NDArray[np.float32] | None:
    if name not in pieces:
        return None
    array: NDArray[Any] = np.load(io.BytesIO(pieces[name]), allow_pickle=False)
    return array.astype(np.float32)


def require_live(client: EngineClient, path: Path) -> int:
    """Return the live generation.

    Args:
        client: Client of the vector database.
        path: Folder that represents the index.

    Raises:
        IndexNotReadyError: If there is none yet.
        EngineUnavailableError: If the vector database does not respond.
    """
    generation = client.live_generation()
    if generation is None:
        raise IndexNotReadyError(f"{path}: nothing was pushed to {client.kind} yet")
    return generation


def read_generation(client: EngineClient, generation: int) -> GenerationRecord:
    """Read the record of a generation.

    Raises:
        IndexNotReadyError: If there is no such generation, or it is incomplete.
        IndexMismatchError: If the schema version differs.
        IndexCorruptError: If the record is damaged.
        EngineUnavailableError: If the vector database does not respond.
    """
    pieces = client.read_record(generation)
    where = f"{client.kind}: generation {generation}"
    if pieces is None or not is_whole(pieces):
        raise IndexNotReadyError(f"{where} is missing or incomplete")
    return GenerationRecord.read(pieces, where)


def piece_texts(pieces: Mapping[str, bytes]) -> dict[str, str]:
    """Return the pieces of a record as texts (base64), for databases without a type for bytes."""
    return {name: base64.b64encode(piece).decode("ascii") for name, piece in pieces.items()}


def pieces_of_texts(texts: Mapping[str, str]) -> dict[str, bytes]:
    """Return the pieces of a record from the texts of `piece_texts`."""
    return {name: base64.b64decode(text) for name, text in texts.items()}


def is_unicode(text: str) -> bool:
    """Whether a text can be stored: no stored text contains a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def item_text(item: StoredItem) -> str:
    """Return an item as JSON without spaces; fields that are None are omitted.

    The state of its file is omitted, too: folders are synchronised with an index in files only.
    """
    data: dict[str, Any] = {
        name: value
        for name, value in item._asdict().items()
        if value is not None and name != "file_state"
    }
    if item.boxes is not None:
        data["boxes"] = base64.b64encode(item.boxes).decode("ascii")
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def item_from_text(text: str) -> StoredItem:
    """Deserialise the result of `item_text`.

    Raises:
        IndexCorruptError: If the text is not an item.
    """
    try:
        data: dict[str, Any] = dict.fromkeys(StoredItem._fields) | json.loads(text)
        if data["boxes"] is not None:
            data["boxes"] = base64.b64decode(data["boxes"], validate=True)
        return StoredItem(**data)
    except (ValueError, TypeError) as error:
        raise IndexCorruptError("item in the engine", f"not readable ({error})") from error


def token_bytes(tokens: PackedTokens) -> bytes:
    """Concatenate the arrays of packed tokens, little-endian."""
    return b"".join(
        np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        for array in tokens
        if array is not None
    )


def tokens_of(stored: bytes, codec: TokenCodec) -> PackedTokens:
    """Read the result of `token_bytes`; the arrays are read-only views.

    Args:
        stored: Stored tokens of one item.
        codec: Codec that packed the tokens.

    Raises:
        ShapeError: If the number of bytes is not a multiple of the size of such a token.
    """
    count, rest = divmod(len(stored), codec.token_bytes)
    if rest:
        raise ShapeError(f"a multiple of {codec.token_bytes} bytes of tokens", (len(stored),))
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for array in codec.arrays:
        shape = (count, *array.row_shape)
        size = int(np.prod(shape))
        little = array.dtype.newbyteorder("<")
        arrays[array.field] = np.frombuffer(stored, little, size, start).reshape(shape)
        start += size * array.dtype.itemsize
    return PackedTokens(**arrays)
