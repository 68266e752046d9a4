"""What region encoders look at in training and evaluation: ready-made regions, by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image

from aladin.config import ModelConfig
from aladin.encoders.base import ImageEncoder
from aladin.errors import InputError
from aladin.feature_cache import content_digest
from aladin.regions.region_set import RegionSet
from training.data import Record
from training.data.regions import RegionStore, region_keys


@dataclass(frozen=True)
class RegionItems:
    """The regions of photos, read when they are asked for; see `ImageItems`.

    Attributes:
        store: of the regions.
        keys: of the photos' regions, by row.
    """

    store: RegionStore
    keys: list[str]

    @property
    def views(self) -> int:
        """Return 1: there is no photo to mirror or to crop."""
        return 1

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self.keys)

    def key(self, row: int, view: int) -> str:
        """Return the name of a photo's regions in a `FeatureCache`; nothing is read for it."""
        return content_digest(f"{self.store.fingerprint}:{self.keys[row]}".encode(), str(view))

    def load(self, row: int, views: Sequence[int]) -> list[Image.Image | RegionSet]:
        """Read a photo's regions.

        Raises:
            DataError: they cannot be used.
        """
        regions = self.store.read(self.keys[row])
        return [regions for _ in views]


def region_items(
    records: Sequence[Record], encoder: ImageEncoder, store: RegionStore
) -> RegionItems:
    """Find the regions of all photos, and look whether the network can read them.

    Args:
        records: at least one photo.
        encoder: of the network; it reads regions.
        store: of the regions.

    Raises:
        RegionError: photos have no regions.
        InputError: the network cannot read the first photo's.
    """
    items = RegionItems(store, region_keys(records, store))
    encoder.preprocess(store.read(items.keys[0]))
    return items


def with_detector(config: ModelConfig, store: RegionStore) -> ModelConfig:
    """Note in a network's configuration which detector made the regions, if these say so.

    Args:
        config: of a recipe; a detector that it names stays.
        store: of the regions that are trained on.
    """
    encoder = config.image_encoder
    if encoder.detector is not None:
        return config
    detector = store.read(next(iter(store.keys()))).detector
    return replace(config, image_encoder=replace(encoder, detector=detector))


def check_regions(encoder: ImageEncoder, store: RegionStore | None) -> None:
    """Refuse photos where a network reads regions, and regions where it reads photos.

    Args:
        encoder: of the network.
        store: of the regions that were given; None: none were.

    Raises:
        InputError: the network reads the other.
    """
    if encoder.reads == "regions" and store is None:
        raise InputError(
            "this network reads regions, not photos: expected ready-made ones, as --regions or "
            "as regions in a recipe's [data]"
        )
    if encoder.reads == "photo" and store is not None:
        raise InputError(f"this network reads photos, not regions: {store.path} is of no use to it")
