"""What Qdrant has to know of a side's tokens to keep items and to return them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from index.remote.qdrant.point_store import TokenVectors
from index.tokens.codec import TokenCodec

_CODEC, _CENTROIDS = "codec", "centroids"


@dataclass(frozen=True, eq=False)
class KeptSide:
    """Kept beside a side's items, and like its collection never changed.

    Attributes:
        codec: of the tokens, without feedback.
        token_vectors: how tokens are kept for MaxSim.
        indexed_paths: fields of the payload that this process had indexed; it is not kept.
    """

    codec: TokenCodec
    token_vectors: TokenVectors
    indexed_paths: set[str] = field(default_factory=set[str])

    def pieces(self) -> dict[str, bytes]:
        """Write this as named pieces of bytes."""
        described = {
            "dtype": self.codec.dtype,
            "dim": self.codec.dim,
            "token_vectors": self.token_vectors,
        }
        pieces = {_CODEC: json.dumps(described).encode()}
        if self.codec.centroids is not None:
            pieces[_CENTROIDS] = self.codec.centroids.astype("<f4").tobytes()
        return pieces

    @classmethod
    def of_pieces(cls, pieces: Mapping[str, bytes]) -> KeptSide:
        """Read what `pieces` wrote."""
        described = json.loads(pieces[_CODEC])
        centroids = pieces.get(_CENTROIDS)
        book = None
        if centroids is not None:
            book = np.frombuffer(centroids, "<f4").reshape(-1, described["dim"])
        return cls(
            TokenCodec(described["dtype"], described["dim"], book), described["token_vectors"]
        )
