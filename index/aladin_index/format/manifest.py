"""The manifest of a generation: what its files are, and which model made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from aladin_network.calibration.calibration import Calibration
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import ConfigError, IndexCorruptError, IndexMismatchError
from aladin_network.files import write_json
from aladin_network.types import TARGETS, Target, TokenDtype

SCHEMA_VERSION = 2
MANIFEST, DIGEST = "manifest.json", "manifest.sha256"

# The commands that make a generation.
MadeBy = Literal["build", "merge", "import", "compact", "tune", "calibrate"]


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """What a file must be.

    Attributes:
        bytes: its length; checked whenever the index is opened.
        sha256: of its content; checked by `aladin_index.generations.verify`.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class RecallPoint:
    """What one way of searching the ANN finds.

    Attributes:
        search_width: efSearch or nprobe; None where every item is compared.
        oversample: items asked of the ANN for each one wanted; the best by exact cosine stay.
        recall: ann_recall, the share of the exact nearest items that are found.
        search_ms: median time of the first stage for one query, on the machine that measured;
            None: not timed, as in a build, which always writes the same.
    """

    search_width: int | None
    oversample: float
    recall: float
    search_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class AnnEntry:
    """The first stage's FAISS index.

    Attributes:
        asked: by whoever built it: "auto", "exact" or a factory string.
        memory_budget_bytes: for "auto", of all sides together; None: any.
        factory: the string that FAISS made it from.
        search_width: efSearch or nprobe of a search; None where every item is compared.
        oversample: items asked of the ANN for each one wanted; the best by exact cosine stay.
        recall: ann_recall, the share of the exact nearest items that a search finds.
        recall_at: number of nearest items the recall was measured at.
        recall_queries: number of queries it was measured with.
        recall_wanted: that the choice was made for.
        curve: the ways that were measured, from the narrowest search on.
    """

    asked: str = "auto"
    memory_budget_bytes: int | None = None
    factory: str
    search_width: int | None
    oversample: float = 1.0
    recall: float
    recall_at: int
    recall_queries: int
    recall_wanted: float = 0.99
    curve: list[RecallPoint] = field(default_factory=list[RecallPoint])


@dataclass(frozen=True, kw_only=True)
class FidelityPoint:
    """What one number of candidates keeps of the exhaustive second stage.

    Attributes:
        candidates: handed to the second stage.
        fidelity: share of the exhaustive order's top hits that two-stage search has as well.
        search_ms: median time of retrieving and re-ranking, on the machine that measured.
    """

    candidates: int
    fidelity: float
    search_ms: float


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The number of candidates that `aladin index tune` chose for a side.

    Attributes:
        candidates: the fewest that reach the fidelity wanted.
        fidelity: reached with them.
        fidelity_wanted: asked for.
        at: number of top hits that are compared.
        queries: number of queries it was measured with.
        curve: all numbers that were measured, ascending.
    """

    candidates: int
    fidelity: float
    fidelity_wanted: float
    at: int
    queries: int
    curve: list[FidelityPoint]


@dataclass(frozen=True, kw_only=True)
class CollectionEntry:
    """The images, or the texts, of a generation.

    Attributes:
        count: number of items.
        left_out: number of items given to the build that could not be used.
        embedding_dim: size of an embedding.
        token_dim: size of a token.
        token_count: number of tokens of all items.
        token_dtype: how tokens are stored.
        filter_fields: metadata fields with an index for filters; None: all.
        ann: the first stage.
        tuning: of the second stage; None: not tuned.
    """

    count: int
    left_out: int
    embedding_dim: int
    token_dim: int
    token_count: int
    token_dtype: TokenDtype
    filter_fields: list[str] | None = None
    ann: AnnEntry
    tuning: Tuning | None = None


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """The model that made the index.

    Attributes:
        id: sha256 of its weights.
        files: of the copy in ``INDEX/model``.
    """

    id: str
    files: dict[str, FileEntry]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A generation's ``manifest.json``.

    Attributes:
        schema_version: of this layout.
        generation: its number.
        metric: of the embeddings.
        default_candidates: of a search that does not say, where the side was not tuned.
        fingerprint: of the build's inputs, model and settings.
        made_by: the command that made it; None: nothing was noted then.
        model: what made it.
        images: None if the index has no images.
        texts: None if the index has no texts.
        calibration: what hits' probabilities are computed by; None: the index is not calibrated.
        fitted_photos_indexed: share of the photos that the calibration was fitted on that are
            among the images, estimated from a sample; None if the calibration was fitted to this
            index (`aladin calibrate --index`) or does not record its photos, or without images.
        files: every file by its path below the generation's folder.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    generation: int
    metric: Literal["inner_product"]
    default_candidates: int
    fingerprint: str
    made_by: MadeBy | None = None
    model: ModelEntry
    images: CollectionEntry | None
    texts: CollectionEntry | None
    calibration: Calibration | None = None
    fitted_photos_indexed: float | None = None
    files: dict[str, FileEntry]

    def side(self, target: Target) -> CollectionEntry | None:
        """Return the entry of one side."""
        return self.images if target == "images" else self.texts

    def candidates(self, target: Target) -> int:
        """Return the number of candidates of a search that does not say."""
        side = self.side(target)
        tuned = None if side is None else side.tuning
        return self.default_candidates if tuned is None else tuned.candidates

    @property
    def sides(self) -> dict[Target, CollectionEntry]:
        """The sides that this generation has, with what is said of them."""
        found: dict[Target, CollectionEntry] = {}
        for target in TARGETS:
            entry = self.side(target)
            if entry is not None:
                found[target] = entry
        return found

    @property
    def targets(self) -> list[Target]:
        """The sides that this generation has."""
        return list(self.sides)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest and, beside it, its own checksum."""
    write_json(folder / MANIFEST, dump_config(manifest))
    digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    (folder / DIGEST).write_text(f"{digest}\n", encoding="ascii")


def read_manifest(folder: Path) -> Manifest:
    """Read a generation's manifest.

    Raises:
        IndexMismatchError: of another schema version.
        IndexCorruptError: missing, changed, or not a manifest.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
        digest = (folder / DIGEST).read_bytes()
    except OSError as error:
        missing = error.filename or path
        raise IndexCorruptError(missing, f"cannot be read ({error.strerror})") from error
    if digest != f"{hashlib.sha256(content).hexdigest()}\n".encode():
        raise IndexCorruptError(path, f"its sha256 is not the one in {DIGEST}")
    try:
        data: Any = json.loads(content)
        version = data["schema_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise IndexCorruptError(path, "not a manifest") from error
    if version != SCHEMA_VERSION:
        raise IndexMismatchError(f"{path}: schema version", SCHEMA_VERSION, version)
    try:
        return parse_config(Manifest, data, MANIFEST)
    except ConfigError as error:
        raise IndexCorruptError(path, str(error)) from error


def describe_files(folder: Path, names: Iterable[str]) -> dict[str, FileEntry]:
    """Measure and hash files.

    Args:
        folder: that the names are relative to.
        names: of the files.
    """
    entries: dict[str, FileEntry] = {}
    for name in sorted(names):
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        entries[name] = FileEntry(bytes=(folder / name).stat().st_size, sha256=digest)
    return entries


def check_lengths(folder: Path, files: dict[str, FileEntry]) -> None:
    """Compare lengths on disk with a manifest's, which takes no reading.

    Raises:
        IndexCorruptError: a file is missing or of another length.
    """
    for name, entry in files.items():
        try:
            length = (folder / name).stat().st_size
        except OSError:
            raise IndexCorruptError(folder / name, "missing") from None
        if length != entry.bytes:
            raise IndexCorruptError(folder / name, f"expected {entry.bytes} bytes, got {length}")
