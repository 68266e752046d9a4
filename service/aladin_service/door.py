"""The doors of an index: what each can ask, wherever the index is."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from aladin_index.search.request import SearchRequest, SearchTerm, check_box
from aladin_service.search.job import (
    ItemQuery,
    PhotoQuery,
    Query,
    QueryTerm,
    RegionsQuery,
    TermsQuery,
    TextQuery,
)

if TYPE_CHECKING:
    from aladin_index.search.request import Picture, PictureSource
    from aladin_index.search.results import SearchAnswer
    from aladin_network.detectors.base import Detector
    from aladin_network.encoders.readers import PhotoReader
    from aladin_network.types import DeviceName, Target
    from aladin_service.client import AladinClient


def query_of(request: SearchRequest) -> Query:
    """Return what a checked request searches for, with the bytes of its pictures."""
    if request.text is not None:
        return TextQuery(request.text)
    if request.has_terms:
        return TermsQuery(
            tuple(
                QueryTerm(_plain_query(each.asked, f"{each.source}."), each.role, each.asked.weight)
                for each in request.terms()
            )
        )
    if request.regions is not None:
        regions, name = picture_bytes(request.regions, "regions")
        box = None if request.box is None else check_box(request.box)
        return RegionsQuery(regions, source=name, box=box)
    return _plain_query(request)


def _plain_query(
    asked: SearchRequest | SearchTerm, source: str = ""
) -> TextQuery | PhotoQuery | ItemQuery:
    if asked.text is not None:
        return TextQuery(asked.text)
    box = None if asked.box is None else check_box(asked.box)
    if asked.id is not None:
        return ItemQuery(asked.id, box=box)
    assert asked.image is not None  # or the request was not checked
    data, name = picture_bytes(asked.image, f"{source}image")
    return PhotoQuery(data, name, box)


def picture_bytes(picture: Picture, source: str) -> tuple[bytes, str]:
    """Return the bytes of a picture's file, and its name in errors: `source`, or its path."""
    if isinstance(picture, bytes):
        return picture, source
    if isinstance(picture, str | os.PathLike):
        return Path(picture).read_bytes(), os.fspath(picture)
    decoded: Any = picture
    if hasattr(picture, "read"):
        return decoded.read(), source
    file = io.BytesIO()
    decoded.convert("RGB").save(file, "PNG", compress_level=1)
    return file.getvalue(), source


def named_detector(detector: str | None) -> str | None:
    """Return the detector named by --detector or, without it, by ALADIN_DETECTOR."""
    if detector is not None:
        return detector
    from aladin_service.settings import read_settings

    return read_settings().detector


def detector_for(
    encoder: PhotoReader, detector: str | None, device: str = "cpu"
) -> Detector | None:
    """Load the detector of a network that reads regions, or return None if none is named.

    Without `detector`, ALADIN_DETECTOR names it; networks that read photos ignore that setting.
    """
    if detector is None and encoder.reads != "regions":
        return None
    name = named_detector(detector)
    if name is None:
        return None
    from aladin_index.encode.region_sources import check_detector
    from aladin_network.detectors.base import load_detector

    found = load_detector(name, device)
    check_detector(encoder, found)
    return found


class Index(Protocol):
    """An index to search, wherever it is: in this process, or behind a service."""

    @property
    def targets(self) -> Sequence[Target]:
        """The collections that it has, as far as is known without asking."""
        ...

    def search(self, request: SearchRequest) -> SearchAnswer:
        """Find the best hits of a checked request."""
        ...

    def fields(self, target: Target) -> list[str]:
        """Return the names of the fields to filter a collection by; none if it lists none."""
        ...

    def photo_path(self, item_id: str) -> Path | None:
        """Return the file that is an item's photo; None without one, and behind a service."""
        ...

    def draw(self, request: SearchRequest, item_id: str, photo: Picture | None) -> bytes:
        """Draw the evidence of a hit as PNG, for regions on their `photo`."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


class Local:
    """An index that is open in this process; searches may run in several threads.

    Attributes:
        path: Folder of the index.
        searcher: Searcher of the live generation.
    """

    def __init__(
        self,
        path: Path,
        device: DeviceName = "cpu",
        detector: str | None = None,
        *,
        reads_photos: bool = True,
    ) -> None:
        """Open the live generation."""
        from aladin_index.devices.search_device import SearchDevice
        from aladin_index.open import open_backend
        from aladin_index.search.searcher import TwoStageSearcher
        from aladin_service.search.encoder import QueryEncoder, query_networks
        from aladin_service.search.lru_cache import EncodingCache
        from aladin_service.settings import QueryLimits, engine_options, read_settings

        settings = read_settings()
        self.path = path
        with ExitStack() as opened:
            place = opened.enter_context(closing(SearchDevice.choose(device)))
            backend = open_backend(path, device=place, engine=engine_options(path))
            opened.callback(backend.close)
            self.searcher = TwoStageSearcher(backend)
            reader = backend.checkpoint.model.image.encoder
            self.detector = detector_for(reader, detector, place.device) if reads_photos else None
            self.limits = QueryLimits()
            self.encoder = QueryEncoder(
                self.limits,
                EncodingCache(settings.query_cache_bytes),
                detector=self.detector,
                networks=query_networks(settings, place.device),
            )
            opened.callback(self.encoder.close)
            self._opened = opened.pop_all()

    @property
    def targets(self) -> Sequence[Target]:
        return self.searcher.index.manifest.targets

    @property
    def untrained(self) -> str | None:
        """Why the order of hits is random, or None."""
        from aladin_network.heads.trained import untrained_reason

        provenance = self.searcher.index.checkpoint.provenance
        return untrained_reason(provenance.recipe, provenance.stage)

    def search(self, request: SearchRequest) -> SearchAnswer:
        from aladin_service.search.reading import read_search

        received_s = time.monotonic()
        target = request.target_in(self.targets)
        read = read_search(self.searcher, query_of(request), target, request.options())
        encoded = self.encoder.encode_one(self.searcher, read.query)
        return read.told(self.searcher.search(encoded, target, read.options, received_s))

    def fields(self, target: Target) -> list[str]:
        from aladin_index.search.collection import NotListableError

        try:
            return [*self.searcher.index.collection(target).list_fields()]
        except NotListableError:
            return []

    def photo_path(self, item_id: str) -> Path | None:
        from aladin_index.items.uploaded_photos import photo_of

        photo = photo_of(self.path, self.searcher.find_item(item_id)[0])
        return None if photo is None or photo.length is not None else photo.path

    def draw(self, request: SearchRequest, item_id: str, photo: Picture | None) -> bytes:
        from aladin_service.evidence.explained import draw_pair
        from aladin_service.evidence.pairs import find_pair

        query = query_of(request)
        assert not isinstance(query, TermsQuery)  # of one term alone is there evidence
        if isinstance(query, RegionsQuery) and photo is not None:
            query = replace(query, picture=picture_bytes(photo, "image")[0])
        pair = find_pair(self.searcher, query, item_id)
        (encoded,) = self.encoder.encode_one(self.searcher, query)
        return draw_pair(self.searcher, pair, encoded, self.encoder.memory)

    def close(self) -> None:
        self._opened.close()


class Remote:
    """An index behind a service."""

    targets: Sequence[Target] = ("images", "texts")

    def __init__(self, client: AladinClient) -> None:
        self._client = client

    def search(self, request: SearchRequest) -> SearchAnswer:
        return self._client.search(replace(request, target=request.target_in(self.targets)))

    def fields(self, target: Target) -> list[str]:
        from aladin_service.client_errors import RefusedInputError

        try:
            listed = self._client.index_fields()
        except RefusedInputError:  # an index in a vector database does not list them
            return []
        of_target = listed.images if target == "images" else listed.texts
        return list(dict.fromkeys(field.name for field in of_target or ()))

    def photo_path(self, item_id: str) -> Path | None:
        del item_id
        return None

    def draw(self, request: SearchRequest, item_id: str, photo: Picture | None) -> bytes:
        image = photo if request.image is None else request.image
        return self._client.explain_png(
            item_id,
            request.text,
            query_id=request.id,
            image=cast("PictureSource | None", image),
            regions=request.regions,
            box=request.box,
        )

    def close(self) -> None:
        self._client.close()
