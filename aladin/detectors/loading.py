"""From what a user writes to a detector.

SOURCE                              an object detector of the DETR family, by folder or hub name
windows=SOURCE                      an image classifier that looks through fixed windows
objects=SOURCE,threshold=0.3        either of them with options
package.module:factory=SOURCE,...   the user's own `DetectorFactory`
name=SOURCE,...                     the same under a name: an entry point of `aladin.detectors`
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import NamedTuple, cast

from aladin.detectors.base import Detector, DetectorFactory
from aladin.errors import ConfigError

GROUP = "aladin.detectors"

# Where the factories are; each is imported when it is asked for.
DETECTORS = {
    "objects": "aladin.detectors.objects:load_objects",
    "windows": "aladin.detectors.windows:load_windows",
}


class DetectorSpec(NamedTuple):
    """A detector as the user wrote it.

    Attributes:
        kind: of `known_detectors`, or a module and an attribute of it.
        source: folder or hub name of weights; None: none given.
        options: by name.
    """

    kind: str
    source: str | None
    options: dict[str, str]


def load_detector(text: str, device: str = "cpu") -> Detector:
    """Load a detector.

    Args:
        text: see this module.
        device: where to run it, as torch names it.

    Raises:
        ConfigError: there is no such detector, or an option is unknown or impossible.
        CheckpointError: its weights cannot be loaded.
    """
    spec = parse_detector(text)
    where = known_detectors().get(spec.kind, spec.kind)
    detector = _import(where)(spec.source, spec.options, device)
    if not isinstance(cast(object, detector), Detector):
        raise ConfigError(f"detector {where}: expected a Detector, got {type(detector).__name__}")
    return detector


def parse_detector(text: str) -> DetectorSpec:
    """Take apart what the user wrote.

    Raises:
        ConfigError: an option has no value, or there is neither a kind nor a source.
    """
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
    """Return where the factories are by name: the built-in ones, and those that are installed."""
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
