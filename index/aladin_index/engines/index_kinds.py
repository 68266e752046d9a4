"""Index kinds of Milvus that serve as first stages, and how each is built and searched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from aladin_index.ann.ann_index import EXACT_UP_TO
from aladin_network.errors import ConfigError

Number = int | float | str

# Factor of the width for a search with a filter, because items that do not pass use up the width,
# too. If a third to a half of 5,000 captions pass, ef=128 finds 0.95 to 0.97 of the nearest 100,
# and ef=1024 more than 0.999; if a sixth or a fifth pass, 0.91 and 0.98, which no width of a graph
# exceeds. A search takes 3 ms instead of 2.
_FILTERED = 8

# For fewer items Milvus does not build the requested index, but searches a coarse one of its own,
# whose width cannot be set. Milvus calls this minSegmentNumRowsToEnableIndex.
INDEXED_ROWS = 1024


class IndexKind(NamedTuple):
    """One kind of index.

    Attributes:
        name: Milvus's.
        build: Build parameters.
        has_lists: Whether it divides the items into lists, whose number depends on that of items.
        width: Parameter that sets how many items a search examines, or None if it compares with
            every item.
        widths: Search widths worth trying, ascending.
        covers_hits: Whether the width must be at least the number of hits wanted.
    """

    name: str
    build: Mapping[str, Number] = {}
    has_lists: bool = False
    width: str | None = None
    widths: tuple[int, ...] = ()
    covers_hits: bool = False

    def build_params(self, count: int) -> dict[str, Number]:
        """Return the build parameters for a number of items."""
        # As advised for FAISS: a multiple of the root of the item count.
        lists = {"nlist": int(min(65_536, max(64, 4 * count**0.5)))} if self.has_lists else {}
        return {**self.build, **lists}


# Powers of two: each step about doubles the time of a search.
_LISTS_SEARCHED = tuple(2**power for power in range(3, 13))
_GRAPH_WIDTHS = tuple(2**power for power in range(7, 13))
_CARD_WIDTHS = tuple(2**power for power in range(6, 11))


def _with_lists(name: str) -> IndexKind:
    return IndexKind(name, has_lists=True, width="nprobe", widths=_LISTS_SEARCHED)


INDEX_KINDS: dict[str, IndexKind] = {
    "flat": IndexKind("FLAT"),
    "hnsw": IndexKind(
        "HNSW",
        {"M": 32, "efConstruction": 200},
        width="ef",
        widths=_GRAPH_WIDTHS,
        covers_hits=True,
    ),
    "ivf_flat": _with_lists("IVF_FLAT"),
    "ivf_sq8": _with_lists("IVF_SQ8"),
    "gpu_brute_force": IndexKind("GPU_BRUTE_FORCE"),
    "gpu_ivf_flat": _with_lists("GPU_IVF_FLAT"),
    "gpu_ivf_pq": _with_lists("GPU_IVF_PQ"),
    "gpu_cagra": IndexKind(
        "GPU_CAGRA",
        {"intermediate_graph_degree": 64, "graph_degree": 32},
        width="itopk_size",
        widths=_CARD_WIDTHS,
        covers_hits=True,
    ),
}
GRAPH, EXACT = "hnsw", "flat"


def kind_for(asked: str | None, count: int) -> str:
    """Choose the index kind of a collection."""
    if count < INDEXED_ROWS or (asked is None and count <= EXACT_UP_TO):
        return EXACT
    return asked or GRAPH


def index_kind(name: str) -> IndexKind:
    """Return the index kind with this name."""
    kind = INDEX_KINDS.get(name)
    if kind is None:
        raise ConfigError(f"index: expected one of {', '.join(INDEX_KINDS)}, got {name!r}")
    return kind


def check_search_params(name: str, chosen: Mapping[str, Number]) -> None:
    """Check that the index kind has these search parameters."""
    width = index_kind(name).width
    for parameter, value in chosen.items():
        if parameter != width:
            expected = "none" if width is None else f"only {width}"
            raise ConfigError(f"search_params of {name}: expected {expected}, got {parameter}")
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{parameter}: expected a number of at least 1, got {value!r}")


def widths_of(kind: IndexKind, chosen: Mapping[str, Number]) -> tuple[int, ...]:
    """Return the widths that a search may have."""
    if kind.width is None or kind.width not in chosen:
        return kind.widths
    return (int(chosen[kind.width]),)


def search_params(
    kind: IndexKind,
    chosen: Mapping[str, Number],
    count: int,
    *,
    width: int | None,
    filtered: bool,
) -> dict[str, Any]:
    """Return the parameters of one search."""
    if kind.width is None:
        return {"metric_type": "IP", "params": {}}
    widths = widths_of(kind, chosen)
    if kind.width in chosen:
        looking = widths[0]
    else:
        looking = (width or widths[-1]) * (_FILTERED if filtered else 1)
    if kind.covers_hits:
        looking = max(looking, count)
    return {"metric_type": "IP", "params": {kind.width: looking}}
