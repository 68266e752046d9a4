"""The interface of detectors, and their specification on the command line.

SOURCE                              an object detector of the DETR family, by folder or hub name
windows=SOURCE                      an image classifier applied to fixed windows
objects=SOURCE,threshold=0.3        either of them with options
package.module:factory=SOURCE,...   the user's own `DetectorFactory`
name=SOURCE,...                     the same by name: an entry point of `aladin_network.detectors`
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from PIL import Image
from pydantic import TypeAdapter, ValidationError

from aladin_network.errors import ConfigError
from aladin_network.photos.regions import RegionSet

GROUP = "aladin_network.detectors"

# Locations of the factories; each is imported when it is needed.
DETECTORS = {
    "objects": "aladin_network.detectors.objects:load_objects",
    "windows": "aladin_network.detectors.windows:load_windows",
}

T = TypeVar("T")


@runtime_checkable
class Detector(Protocol):
    """Finds the regions of photos; safe to use from any number of threads.

    Attributes:
        id: Identifies what the vectors depend on, the same on every machine: the kind of detector,
            its weights and its options. A network only works with the detector that it was trained
            with.
        dim: Length of each vector, geometry included.
    """

    id: str
    dim: int

    def detect(self, photo: Image.Image) -> RegionSet:
        """Find the regions of an upright RGB photo.

        Returns:
            At least one region, with its box; `detector` is this one's id.

        Raises:
            InputError: If the photo cannot be used.
        """
        ...


@runtime_checkable
class BatchDetector(Detector, Protocol):
    """A detector that is faster with several photos at once."""

    def detect_batch(self, photos: Sequence[Image.Image]) -> list[RegionSet]:
        """Find the regions of each photo, the same as `detect` finds up to rounding."""
        ...


@runtime_checkable
class DetectorFactory(Protocol):
    """Builds a detector from the user's specification; see `aladin_network.detectors.base`."""

    def __call__(self, source: str | None, options: Mapping[str, str], device: str) -> Detector: ...


def detect_all(detector: Detector, photos: Sequence[Image.Image]) -> list[RegionSet]:
    """Find the regions of several photos, in one batch if the detector supports it."""
    if isinstance(detector, BatchDetector):
        return detector.detect_batch(photos)
    return [detector.detect(photo) for photo in photos]


class DetectorSpec(NamedTuple):
    """A detector as specified by the user."""

    kind: str
    source: str | None
    options: dict[str, str]


def load_detector(text: str, device: str = "cpu") -> Detector:
    """Load a detector.

    Args:
        text: Detector specification; see this module.
        device: Device to run on, as torch names it.

    Raises:
        ConfigError: If there is no such detector, or an option is unknown or impossible.
        CheckpointError: If the weights of the detector cannot be loaded.
    """
    spec = parse_detector(text)
    where = known_detectors().get(spec.kind, spec.kind)
    detector = _import(where)(spec.source, spec.options, device)
    if not isinstance(cast(object, detector), Detector):
        raise ConfigError(f"detector {where}: expected a Detector, got {type(detector).__name__}")
    return detector


def parse_detector(text: str) -> DetectorSpec:
    """Parse the user's specification of a detector."""
    head, *rest = (part.strip() for part in text.split(","))
    kind, equals, source = head.partition("=")
    if not equals:
        is_kind = head in known_detectors() or ":" in head
        kind, source = (head, "") if is_kind else ("objects", head)
    elif kind not in known_detectors() and ":" not in kind:
        known = ", ".join(sorted(known_detectors()))
        raise ConfigError(f"detector: expected one of {known} or MODULE:NAME, got {kind!r}")
    if not kind or not head:
        raise ConfigError("detector: expected the name or the folder of one, got nothing")
    options: dict[str, str] = {}
    for part in rest:
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ConfigError(f"detector: expected OPTION=VALUE, got {part!r}")
        options[name] = value
    return DetectorSpec(kind, source or None, options)


def known_detectors() -> dict[str, str]:
    """Return the location of each factory by name: built-in and installed ones."""
    installed = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return installed | DETECTORS


def _import(where: str) -> DetectorFactory:
    module, _, name = where.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"detector {where}: cannot be imported ({error})") from error
    if not callable(factory):
        raise ConfigError(f"detector {where}: expected a function or a class")
    return cast(DetectorFactory, factory)


def parse_options(schema: type[T], options: Mapping[str, str], kind: str) -> T:
    """Build a detector's options."""
    try:
        # With pydantic's rules for text, "0.3" is a number; an unknown name remains an error.
        return TypeAdapter(schema).validate_strings(dict(options))
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: "
            + ("unknown option" if "unexpected" in fault["type"] else fault["msg"])
            for fault in error.errors(include_url=False)
        ]
        known = ", ".join(field.name for field in dataclasses.fields(cast(Any, schema)))
        faults.append(f"options are {known}")
        raise ConfigError(f"detector {kind}: " + "; ".join(faults)) from None


def options_text(options: object, leave_out: tuple[str, ...] = ()) -> str:
    """Format options for a detector's id: all that affect its output, sorted by name."""
    values = dataclasses.asdict(cast(Any, options))
    return ",".join(f"{key}={values[key]}" for key in sorted(values) if key not in leave_out)
