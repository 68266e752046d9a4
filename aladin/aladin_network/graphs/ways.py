"""Ways to compute a network, and the network that encodes queries in one of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aladin_network.graphs.loading import runtime_setting
from aladin_network.graphs.network import GraphNetwork
from aladin_network.graphs.runtimes import installed_runtimes, precisions_of
from aladin_network.inference import Network, multiplies_bfloat16
from aladin_network.types import GraphRuntime, Modality, Precision, Way

_LOG = logging.getLogger(__name__)


def ways_of(model: Network, modality: Modality) -> list[Way]:
    """Return the ways in which this machine computes a tower, that of the network itself first.

    They are those of the packages that are installed, or of the one that ALADIN_RUNTIME names; in
    bfloat16 where the processor multiplies it. Torch is no way of a network of graphs: a service
    would take twice the memory for it.

    Args:
        model: Network on the CPU, in float32.
        modality: Tower.
    """
    if not isinstance(model, GraphNetwork):
        reduced = modality == "text" and multiplies_bfloat16()
        return [Way("torch", "float32"), *([Way("torch", "bfloat16")] if reduced else [])]
    runtimes: list[GraphRuntime] = [model.runtime]
    if runtime_setting() == "auto":
        runtimes.extend(name for name in installed_runtimes() if name != model.runtime)
    return [Way(runtime, precision) for runtime in runtimes for precision in precisions_of(runtime)]


def computed_in(model: Network, way: Way) -> Network:
    """Return the network that computes a tower in one of its `ways_of`."""
    if way.runtime == "torch":
        return model if way.precision == "float32" else model.with_texts_in_bfloat16()
    assert isinstance(model, GraphNetwork)  # by `ways_of`
    return model.computed_in(way.runtime, way.precision)


def query_network(
    model: Network,
    modality: Modality,
    tuned: Way | None = None,
    *,
    precision: Precision = "float32",
    as_tuned: bool = False,
    photo_threads: int | None = None,
) -> Network:
    """Return the network that encodes queries in place of an index's own.

    Args:
        model: Network of the index, in float32 and evaluation mode; it is not modified.
        modality: Modality of the queries.
        tuned: Way that was chosen for the index, which another machine may have done, or None.
        precision: Precision of texts; photos are encoded in float32. If it is bfloat16 and
            `as_tuned` is off, another runtime of the network's graphs is taken that has it.
        as_tuned: Whether the way that was chosen takes precedence, unless ALADIN_RUNTIME names
            another runtime.
        photo_threads: Threads that compute a photo by graphs, or None for those of the model.
    """
    network = _network_of(model, modality, tuned, precision=precision, as_tuned=as_tuned)
    if modality == "image" and photo_threads is not None and isinstance(network, GraphNetwork):
        return network.on_threads(photo_threads)
    return network


def _network_of(
    model: Network, modality: Modality, tuned: Way | None, *, precision: Precision, as_tuned: bool
) -> Network:
    ways = ways_of(model, modality)
    if tuned is not None and as_tuned:
        if tuned in ways:
            return computed_in(model, tuned)
        if runtime_setting() == "auto":
            _LOG.warning(
                "%s queries are encoded by %s: the index was tuned for %s, for which this machine "
                "has no package, no graphs or no instructions",
                modality,
                ways[0].runtime,
                tuned,
            )
    if modality == "image" or precision == "float32":
        return model
    return computed_in(model, _in_bfloat16(ways, any_runtime=not as_tuned))


def _in_bfloat16(ways: Sequence[Way], *, any_runtime: bool) -> Way:
    own = ways[0]
    if own.runtime == "torch":  # which emulates it where the processor has none
        return Way("torch", "bfloat16")
    for way in ways:
        if way.precision == "bfloat16" and (any_runtime or way.runtime == own.runtime):
            return way
    if any_runtime:
        _LOG.warning(
            "texts are encoded in float32: bfloat16 needs OpenVINO and a processor that "
            "multiplies it"
        )
    return own
