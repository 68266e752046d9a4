"""Manifest of a generation: its files, and the model that made them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict

from aladin_index.facts import (
    CollectionForm,
    EncodedEntry,
    FirstStage,
    OperatingPoint,
    TunedCandidates,
    present,
)
from aladin_index.format.layout import (
    GENERATIONS,
    MODEL,
    MODELS,
    generation_folder,
    live_generation,
    parse_versioned,
    published_generations,
)
from aladin_network.calibration.calibration import Calibration
from aladin_network.checkpoint_files import GRAPHS
from aladin_network.config import STRICT, dump_config
from aladin_network.errors import (
    AladinError,
    CheckpointError,
    IndexCorruptError,
    IndexMismatchError,
)
from aladin_network.files import (
    FileEntry,
    atomic_folder,
    describe_files,
    link_or_copy,
    write_json,
)
from aladin_network.graphs.files import check_graphs, read_graphs
from aladin_network.scoring.fusion import Fusion
from aladin_network.scoring.hub_correction import CorrectionConstants
from aladin_network.types import Target

SCHEMA_VERSION = 1
MANIFEST, DIGEST = "manifest.json", "manifest.sha256"

# Coordinates of a corrected vector after those of the embedding.
BIASES = 2

# Commands that create a generation.
MadeBy = Literal["build", "merge", "import", "compact", "tune", "calibrate", "upgrade"]


@dataclass(frozen=True, kw_only=True)
class RecallPoint(OperatingPoint):
    """A measured setting.

    Attributes:
        search_ms: Median time of the first stage for one query in ms, on the machine that measured
            it, or None if not timed, as in a build, whose output is deterministic.
    """

    search_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class AnnEntry(FirstStage):
    """FAISS index of the first stage.

    Attributes:
        asked: Value that the user requested: "auto", "exact", "exact-align" or a factory string.
        memory_budget_bytes: Limit for "auto", for all collections together, or None for no limit.
        recall_queries: Number of queries that the recall was measured with.
        recall_wanted: Recall that the index was chosen for.
        curve: Measured operating points, starting with the narrowest search.
    """

    asked: str = "auto"
    memory_budget_bytes: int | None = None
    recall_queries: int
    recall_wanted: float = 0.99
    curve: list[RecallPoint] = field(default_factory=list[RecallPoint])


@dataclass(frozen=True, kw_only=True)
class BoundsEntry:
    """Short tokens of a collection, see `aladin_index.tokens.bound_files`.

    Attributes:
        kept: Number of transformed dimensions of a short token.
        longest: Length that no stored token exceeds.
    """

    kept: int
    longest: float


@dataclass(frozen=True, kw_only=True)
class FidelityPoint:
    """Fidelity of one number of candidates to the exhaustive second stage.

    Attributes:
        candidates: Number of candidates that are passed to the second stage.
        fidelity: Share of the top hits of the exhaustive order that two-stage search also returns.
        search_ms: Median time of retrieving and re-ranking, on the machine of the measurement.
    """

    candidates: int
    fidelity: float
    search_ms: float


@dataclass(frozen=True, kw_only=True)
class Tuning(TunedCandidates):
    """Number of candidates that `aladin index tune` chose for a collection.

    Attributes:
        fidelity_wanted: Requested fidelity.
        queries: Number of queries that the fidelity was measured with.
        curve: All measured numbers of candidates, ascending.
    """

    fidelity_wanted: float
    queries: int
    curve: list[FidelityPoint]


@dataclass(frozen=True, kw_only=True)
class CollectionEntry(CollectionForm):
    """Images or texts of a generation, as it was built.

    Attributes:
        filter_fields: Metadata fields with an index for filters, or None for all fields.
        bounds: Short tokens of the alignment's bounds, or None if they are computed in memory.
        corrected: Whether the vectors have the biases of the index's hubness correction, see
            `aladin_index.ann.hub_correction`.
    """

    filter_fields: list[str] | None = None
    ann: AnnEntry
    tuning: Tuning | None = None
    bounds: BoundsEntry | None = None
    corrected: bool = False

    @property
    def vector_dim(self) -> int:
        """Size of a vector of the first stage: the embedding, and the biases of a correction."""
        return self.embedding_dim + (BIASES if self.corrected else 0)


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """The model that made the index.

    Attributes:
        id: SHA-256 of the weights of the model.
        files: Files of the copy in ``INDEX/model``.
    """

    id: str
    files: dict[str, FileEntry]


@dataclass(frozen=True, kw_only=True)
class EncodingsManifest:
    """What the manifests of a generation and of an exported folder of encodings have in common.

    Attributes:
        schema_version: Schema version of the layout.
        metric: Metric of the embeddings.
        images: None if there are no images.
        texts: None if there are no texts.
        calibration: Calibration of the hits' probabilities, or None if there is none.
        files: All files, by path relative to the folder.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    metric: Literal["inner_product"]
    images: EncodedEntry | None
    texts: EncodedEntry | None
    calibration: Calibration | None = None
    files: dict[str, FileEntry]


@dataclass(frozen=True, kw_only=True)
class Manifest(EncodingsManifest):
    """A generation's ``manifest.json``.

    Attributes:
        generation: Number of the generation.
        default_candidates: Number of candidates of a search that does not specify one, if the
            collection was not tuned.
        fingerprint: Fingerprint of the build's inputs, model and settings.
        made_by: Command that created it.
        replaces: Generation that was live when it was created, or None for the first one.
        model: Model that made the generation.
        correction: Constants of the hubness correction, whose banks are in a file, or None if the
            scores are not corrected.
    """

    generation: int
    default_candidates: int
    fingerprint: str
    made_by: MadeBy
    replaces: int | None
    model: ModelEntry
    images: CollectionEntry | None
    texts: CollectionEntry | None
    correction: CorrectionConstants | None = None

    def collection(self, target: Target) -> CollectionEntry | None:
        return self.images if target == "images" else self.texts

    def fusion(self, of_model: Fusion) -> Fusion:
        """Return the constants of the fusion: those of the corrected scores, or the model's."""
        return of_model if self.correction is None else self.correction.fusion

    def candidates(self, target: Target) -> int:
        """Return the number of candidates of a search that does not specify one."""
        collection = self.collection(target)
        tuned = None if collection is None else collection.tuning
        return self.default_candidates if tuned is None else tuned.candidates

    @property
    def collections(self) -> dict[Target, CollectionEntry]:
        return present(self.images, self.texts)

    @property
    def targets(self) -> list[Target]:
        """Targets of the collections of this generation."""
        return list(self.collections)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest, and its checksum in a second file."""
    write_json(folder / MANIFEST, dump_config(manifest))
    digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    (folder / DIGEST).write_text(f"{digest}\n", encoding="ascii")


def read_manifest(folder: Path) -> Manifest:
    """Read a generation's manifest.

    Raises:
        IndexMismatchError: If the schema version differs.
        IndexCorruptError: If the manifest is missing, changed or not a manifest.
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
    return parse_versioned(Manifest, content, path, SCHEMA_VERSION, "not a manifest")


def check_lengths(folder: Path, files: dict[str, FileEntry]) -> None:
    """Compare file sizes on disk with those of a manifest, without reading the files."""
    for name, entry in files.items():
        try:
            length = (folder / name).stat().st_size
        except OSError:
            raise IndexCorruptError(folder / name, "missing") from None
        if length != entry.bytes:
            raise IndexCorruptError(folder / name, f"expected {entry.bytes} bytes, got {length}")


# Digits of a model's name in `MODELS`.
_DIGITS = 16


def upgrade_model_folder(root: Path, model_id: str) -> Path:
    """Return the folder of a model that comes by an upgrade, which may not exist."""
    return root / MODELS / model_id[:_DIGITS]


def model_folder(root: Path, model_id: str) -> Path:
    """Return the folder of a generation's checkpoint.

    Args:
        root: Index folder.
        model_id: SHA-256 of the weights, as the generation's manifest names it.
    """
    folder = upgrade_model_folder(root, model_id)
    return folder if folder.is_dir() else root / MODEL


def live_model_folder(root: Path) -> Path:
    """Return the folder of the checkpoint that the live generation of an index of files is of.

    Raises:
        IndexNotReadyError: If nothing was published yet.
        IndexCorruptError: If CURRENT or the manifest is damaged.
    """
    manifest = read_manifest(generation_folder(root, live_generation(root)))
    return model_folder(root, manifest.model.id)


def likely_model_folder(root: Path) -> Path:
    """Return the folder of the live checkpoint as far as the files tell; it may be missing.

    An index in a vector database has its first checkpoint or else any other; see
    `aladin_index.open.live_model` for the live one.
    """
    try:
        return live_model_folder(root)
    except AladinError:
        others = sorted((root / MODELS).glob("[0-9a-f]*"))
        return others[0] if others and not (root / MODEL).is_dir() else root / MODEL


def copy_model(checkpoint_folder: Path, folder: Path, model: ModelEntry) -> None:
    """Take a checkpoint, its graphs included, into an index; the folder appears complete.

    What has weights is linked where that is possible: on the disk they are once.
    """
    with atomic_folder(folder) as partial:
        for name in model.files:
            if not name.startswith(f"{GRAPHS}/"):
                link_or_copy(checkpoint_folder / name, partial / name)
        if (graphs := read_graphs(checkpoint_folder, model.id)) is not None:
            shutil.copytree(
                checkpoint_folder / GRAPHS, partial / GRAPHS, copy_function=link_or_copy
            )
            check_graphs(partial, graphs)
        if describe_files(partial, model.files) != model.files:
            raise CheckpointError(f"{checkpoint_folder}: changed while it was copied")


def copy_upgrade_model(
    checkpoint_folder: Path, root: Path, model: ModelEntry, generations: Iterable[Manifest]
) -> Path:
    """Copy a checkpoint into `upgrade_model_folder`, unless its files are there.

    Generations of the same weights share one copy. One that no generation is of was left by an
    upgrade that was killed or given up, and is replaced if its files differ.
    """
    for each in generations:
        if each.model.id == model.id:
            check_same_model(f"{root}: generation {each.generation}", each.model, model)
    folder = upgrade_model_folder(root, model.id)
    if not has_model(folder, model):
        copy_model(checkpoint_folder, folder, model)
    return folder


def check_same_model(what: str, expected: ModelEntry, model: ModelEntry) -> None:
    """Compare the model of a generation, which errors call `what`, with a checkpoint, by file."""
    if expected.id != model.id:
        raise IndexMismatchError(f"{what}: model", expected.id, model.id)
    for name, entry in expected.files.items():
        if model.files.get(name) != entry:
            actual = model.files[name].sha256 if name in model.files else "none"
            raise IndexMismatchError(f"{what}: sha256 of {name}", entry.sha256, actual)


def has_model(folder: Path, model: ModelEntry) -> bool:
    """Whether a checkpoint folder has all files of a model with the same content."""
    try:
        check_lengths(folder, model.files)
    except IndexCorruptError:
        return False
    return describe_files(folder, model.files) == model.files


def drop_models(root: Path) -> None:
    """Remove the models of no generation on the disk; called by the only builder."""
    if not (root / MODELS).is_dir():
        return
    used = {
        read_manifest(root / GENERATIONS / f"{number:06d}").model.id
        for number in published_generations(root)
    }
    kept = {model_folder(root, model_id) for model_id in used}
    for folder in (*(root / MODELS).iterdir(), root / MODEL):
        if folder not in kept and folder.is_dir():
            doomed = root / f".{folder.name}.unused.partial"
            shutil.rmtree(doomed, ignore_errors=True)
            folder.rename(doomed)  # a reader finds a whole model or none
            shutil.rmtree(doomed)
