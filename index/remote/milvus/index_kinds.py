"""The first stages that Milvus builds, and how each is built and searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aladin.errors import ConfigError

Number = int | float | str


class IndexKind(NamedTuple):
    """One kind of index.

    Attributes:
        name: Milvus's.
        build: parameters of building it, by the number of items.
        search: parameters of searching it.
        width: the one of `search` that has to be as large as the number of hits wanted.
    """

    name: str
    build: Callable[[int], dict[str, Number]]
    search: dict[str, Number]
    width: str | None = None


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
    "flat": IndexKind("FLAT", _nothing, {}),
    "hnsw": IndexKind("HNSW", _graph, {"ef": 200}, "ef"),
    "ivf_flat": IndexKind("IVF_FLAT", _lists, {"nprobe": 64}),
    "ivf_sq8": IndexKind("IVF_SQ8", _lists, {"nprobe": 64}),
    "gpu_brute_force": IndexKind("GPU_BRUTE_FORCE", _nothing, {}),
    "gpu_ivf_flat": IndexKind("GPU_IVF_FLAT", _lists, {"nprobe": 64}),
    "gpu_ivf_pq": IndexKind("GPU_IVF_PQ", _lists, {"nprobe": 64}),
    "gpu_cagra": IndexKind("GPU_CAGRA", _cagra, {"itopk_size": 256}, "itopk_size"),
}
DEFAULT_INDEX = "hnsw"


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
        ConfigError: there is no such kind, or it has no such parameter.
    """
    known = index_kind(name).search
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        expected = f"only {', '.join(known)}" if known else "none"
        raise ConfigError(f"search_params of {name}: expected {expected}, got {unknown[0]}")


def search_params(kind: IndexKind, chosen: Mapping[str, Number], count: int) -> dict[str, Any]:
    """Return the parameters of one search.

    Args:
        kind: of the index.
        chosen: in the place of the kind's own; those of other kinds are left out, for an older
            generation may be of one.
        count: hits wanted.
    """
    params: dict[str, Any] = {name: chosen.get(name, own) for name, own in kind.search.items()}
    if kind.width is not None:
        params[kind.width] = max(int(params[kind.width]), count)
    return {"metric_type": "IP", "params": params}
