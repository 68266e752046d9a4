"""The end of an upgrade: a generation of the new model, with the changes that came meanwhile.

Its files are written while searches and changes of the live generation go on. What is added or
deleted in that time is encoded and carried over before it goes live; only the last of it, what
comes while the rest is encoded, makes writers wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager

from aladin_index.build.shards import ShardFormat
from aladin_index.changes.writable import WritableGeneration
from aladin_index.encode.kept_regions import KeptRegions
from aladin_index.encode.read_ahead import StageSeconds
from aladin_index.format.disk import changes_lock
from aladin_index.format.layout import generation_folder
from aladin_index.format.manifest import DIGEST, Manifest
from aladin_index.format.models import model_folder
from aladin_index.format.records import SkippedItem
from aladin_index.generations.collection_writer import CollectionSource
from aladin_index.generations.compact import settings_of
from aladin_index.generations.writer import write_generation
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.sample_texts import SampleTexts
from aladin_index.tokens.store import codec_for
from aladin_index.upgrade.encoding import PartsWriter
from aladin_index.upgrade.new_collection import NewCollection, live_rows
from aladin_index.upgrade.successor import SuccessorIndex
from aladin_network.calibration.fitted_files import read_fitted
from aladin_network.errors import InputError
from aladin_network.types import TARGETS, Progress, Target

Skipped = dict[Target, list[SkippedItem]]


class NewGeneration:
    """The generation that an upgrade ends with.

    Attributes:
        skipped: Items that it does not have.
        counts: Number of items of each collection, with the changes that were carried over.
        carried: Number of changes that came while it was written.
        not_kept: Commands that fit anew what was fitted to the old model.
    """

    def __init__(
        self,
        successor: SuccessorIndex,
        writers: Mapping[Target, PartsWriter],
        find_skipped: Callable[[], Skipped],
        progress: Progress,
        seconds: StageSeconds,
    ) -> None:
        """Write nothing yet.

        Args:
            successor: What the new model has encoded.
            writers: Encode the rest of each collection.
            find_skipped: Returns the live items that cannot be encoded, or raises an error if the
                upgrade may not end without them.
            progress: Receives the progress in items and vectors.
            seconds: Receives the time of each stage.
        """
        self._successor = successor
        self._writers = writers
        self._find_skipped = find_skipped
        self._progress = progress
        self._seconds = seconds
        self._sides: dict[Target, NewCollection] = {}
        self.skipped: list[SkippedItem] = []
        self.counts: dict[Target, int] = {}
        self.carried = 0
        self.not_kept: list[str] = []

    def write(self) -> int:
        """Write the generation, make it live and return its number.

        Raises:
            InputError: If a collection has no item left, or items are missing that may not be.
        """
        successor = self._successor
        live = successor.live.manifest
        skipped = self._find_skipped()
        for target in live.targets:
            encoded = successor.encoded(target)
            side = successor.live.side(target)
            rows = live_rows(side)
            kept = rows[encoded.are_encoded(rows)]
            if len(kept) == 0:
                raise InputError(
                    f"{target}: no item is left, and a generation needs at least one: add some, or "
                    "give the upgrade up with --discard"
                )
            self._sides[target] = NewCollection(side, encoded, kept)
        model = successor.manifest.model
        folder = model_folder(successor.path, model.id)
        calibration, correction = read_fitted(folder, model.id)
        self.not_kept = _fitted_to_old(
            live,
            has_calibration=calibration is not None,
            has_correction=correction is not None,
        )
        return write_generation(
            successor.path,
            {target: self._source(target, skipped[target]) for target in live.targets},
            model,
            settings_of(live),
            self._fingerprint(),
            self._progress,
            self._seconds,
            going_live=self._carry,
            made_by="upgrade",
            calibration=calibration,
            correction=correction,
        )

    def _source(self, target: Target, skipped: list[SkippedItem]) -> CollectionSource:
        """Describe a collection by its encodings; tokens are stored as those of the old one."""
        side = self._sides[target]
        entry = side.live.entry
        codec, form = self._codec(target), ShardFormat.of(self._successor.checkpoint.model)
        kept_regions = self._kept_regions(entry.keep_regions) if target == "images" else None
        return CollectionSource(
            embedding_dim=form.embedding_dim,
            codec=codec,
            parts=side.parts(codec, kept_regions),
            left_out=skipped,
            count=len(side.kept),
            keep_regions=None if kept_regions is None else entry.keep_regions,
        )

    def _codec(self, target: Target) -> TokenCodec:
        dtype = self._sides[target].live.entry.token_dtype
        tokens = [part.store.stored.values for part in self._sides[target].encoded.parts]
        others = [self._sides[other] for other in TARGETS if other in self._sides.keys() - {target}]
        asking = [part.store.stored.values for side in others for part in side.encoded.parts]
        return codec_for(dtype, tokens, asking)

    def _kept_regions(self, count: int | None) -> KeptRegions | None:
        """Return what chooses the regions to store of a photo, or None to store all."""
        if count is None or "texts" not in self._sides:
            return None
        parts = self._sides["texts"].encoded.parts
        texts = SampleTexts.of([(part.embeddings, part.store) for part in parts])
        return KeptRegions.of(count, texts, self._successor.checkpoint.model)

    def _fingerprint(self) -> str:
        """Hash what determines the generation."""
        live, model = self._successor.live, self._successor.manifest.model
        digest = hashlib.sha256(f"upgrade {live.manifest.fingerprint} {model.id}\n".encode())
        digest.update((generation_folder(live.path, live.generation) / DIGEST).read_bytes())
        for target, side in self._sides.items():
            digest.update(f"{target} ".encode() + side.kept.tobytes())
        return digest.hexdigest()

    @contextmanager
    def _carry(self, generation: int) -> Generator[None]:
        """Bring the new generation up to date, and lock the index against changes till it is live.

        Raises:
            InputError: If what was added meanwhile cannot be encoded and may not be skipped.
        """
        successor = self._successor
        for writer in self._writers.values():
            writer.write_rest()
        with changes_lock(successor.path):
            for writer in self._writers.values():
                writer.write_rest()
            skipped = self._find_skipped()
            new = WritableGeneration(successor.path, generation, successor.manifest.model.id)
            with closing(new):
                for target, side in self._sides.items():
                    live, encoded = successor.live.side(target), successor.encoded(target)
                    carried = side.carry(new, live, encoded, successor.checkpoint.model)
                    self.carried += sum(carried)
                    self.counts[target] = len(side.kept) + carried.added - carried.removed
            self.skipped = [each for of_target in skipped.values() for each in of_target]
            yield


def _fitted_to_old(live: Manifest, *, has_calibration: bool, has_correction: bool) -> list[str]:
    """Name the commands whose results are those of the old model, and which the new one lacks."""
    entries = live.sides.values()
    commands = {
        "tune": bool(live.encoding) or any(entry.tuning is not None for entry in entries),
        "correct": live.correction is not None and not has_correction,
        "calibrate": live.calibration is not None and not has_calibration,
    }
    return [command for command, is_missing in commands.items() if is_missing]
