"""The index kinds of Milvus that we use as first stages, and how each is built and searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aladin_index.ann.ann_index import EXACT_UP_TO
from aladin_network.errors import ConfigError

Number = int | float | str


class IndexKind(NamedTuple):
    """One kind of index.

    Attributes:
        name: Milvus's.
        build: parameters of building it, by the number of items.
        width: the parameter that says how far a search looks; None: it compares with every item.
        widths: worth trying, ascending.
        covers_hits: whether the width has to be as large as the number of hits wanted.
    """

    name: str
    build: Callable[[int], dict[str, Number]]
    width: str | None = None
    widths: tuple[int, ...] = ()
    covers_hits: bool = False


# Powers of two: a search takes about twice as long from one to the next.
_LISTS_SEARCHED = tuple(2**power for power in range(3, 13))
_GRAPH_WIDTHS = tuple(2**power for power in range(7, 13))
_CARD_WIDTHS = tuple(2**power for power in range(6, 11))
# A search with a filter looks so many times as far: what does not pass takes up the width, too.
# Of the nearest 100 of 5,000 captions, of which a third to a half pass, ef=128 finds 0.95 to 0.97
# and ef=1024 more than 0.999; of a sixth or a fifth 0.91 and 0.98, which no width of a graph goes
# beyond. A search takes 3 ms instead of 2.
_FILTERED = 8


def _lists(count: int) -> dict[str, Number]:
    """As many lists as FAISS's authors advise: a multiple of the root of the number of items."""
    return {"nlist": int(min(65_536, max(64, 4 * count**0.5)))}


def _graph(count: int) -> dict[str, Number]:
    del count  # a graph's links do not depend on it
    return {"M": 32, "efConstruction": 200}


def _nothing(count: int) -> dict[str, Number]:
    del count
    return {}


def _cagra(count: int) -> dict[str, Number]:
    del count
    return {"intermediate_graph_degree": 64, "graph_degree": 32}


INDEX_KINDS: dict[str, IndexKind] = {
    "flat": IndexKind("FLAT", _nothing),
    "hnsw": IndexKind("HNSW", _graph, "ef", _GRAPH_WIDTHS, covers_hits=True),
    "ivf_flat": IndexKind("IVF_FLAT", _lists, "nprobe", _LISTS_SEARCHED),
    "ivf_sq8": IndexKind("IVF_SQ8", _lists, "nprobe", _LISTS_SEARCHED),
    "gpu_brute_force": IndexKind("GPU_BRUTE_FORCE", _nothing),
    "gpu_ivf_flat": IndexKind("GPU_IVF_FLAT", _lists, "nprobe", _LISTS_SEARCHED),
    "gpu_ivf_pq": IndexKind("GPU_IVF_PQ", _lists, "nprobe", _LISTS_SEARCHED),
    "gpu_cagra": IndexKind("GPU_CAGRA", _cagra, "itopk_size", _CARD_WIDTHS, covers_hits=True),
}
GRAPH, EXACT = "hnsw", "flat"
# Milvus builds no index of fewer, whichever was asked for, but searches them by a coarse one of its
# own that cannot be told to look further. It calls this minSegmentNumRowsToEnableIndex.
INDEXED_ROWS = 1024


def kind_for(asked: str | None, count: int) -> str:
    """Choose the kind for a side.

    Args:
        asked: None: exact while that is fast, then a graph.
        count: items of the side.
    """
    if count < INDEXED_ROWS or (asked is None and count <= EXACT_UP_TO):
        return EXACT
    return asked or GRAPH


def index_kind(name: str) -> IndexKind:
    """Return the kind with a name.

    Raises:
        ConfigError: there is none.
    """
    kind = INDEX_KINDS.get(name)
    if kind is None:
        raise ConfigError(f"index: expected one of {', '.join(INDEX_KINDS)}, got {name!r}")
    return kind


def check_search_params(name: str, chosen: Mapping[str, Number]) -> None:
    """Refuse parameters that a search of an index does not have.

    Raises:
        ConfigError: there is no such kind, it has no such parameter, or it is no number.
    """
    width = index_kind(name).width
    for parameter, value in chosen.items():
        if parameter != width:
            expected = "none" if width is None else f"only {width}"
            raise ConfigError(f"search_params of {name}: expected {expected}, got {parameter}")
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{parameter}: expected a number of at least 1, got {value!r}")


def widths_of(kind: IndexKind, chosen: Mapping[str, Number]) -> tuple[int, ...]:
    """Return how far a search may look.

    Args:
        kind: of the index.
        chosen: by hand; what other kinds have is left out, for an older generation may be of one.
    """
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
    """Return the parameters of one search.

    Args:
        kind: of the index.
        chosen: see `widths_of`; goes before `width`.
        count: hits wanted.
        width: that was found to be enough without a filter; None: the widest.
        filtered: whether there is a filter.
    """
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
