"""Cost and loss of each stored form of tokens, on an index of photos and captions.

    python -m benchmarks.search.token_forms --index INDEX [--candidates 100] [--json]

INDEX has float16 tokens of photos and texts, and texts with the ID of their photo (`image_id`). The
tokens of both collections are packed in every form; those of queries are not, as in a search. For
each form:

bytes_per_token      bytes of a photo's token, including its scale and centroid ID
million_photos_gib   size of the tokens of a million photos with 49 tokens each
score_error          mean absolute difference of a candidate's score from that of float16
two_stage_r1         R@1 in percent: candidates by the embeddings, ordered by the fusion
loss                 R@1 of float16, minus that of the form
fidelity             share of the top 10 by exhaustive alignment that is in float16's top 10

t2i: captions search photos; i2t: photos search captions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aladin_index.ann.first_stage import largest
from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.models import likely_model_folder
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.maxsim import alignment_with_all
from aladin_index.tokens.store import TokenStore
from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.fusion import Fusion
from aladin_network.types import TOKEN_DTYPES, Direction, Modality, Target, TokenDtype
from benchmarks.lib.output import figures_parser, print_json, print_rows

_TOP = 10
_PHOTOS, _TOKENS_A_PHOTO = 1_000_000, 49


@dataclass(frozen=True)
class SideData:
    """One collection of the index.

    Attributes:
        embeddings: (items, d_match) float32.
        tokens: (tokens, dim) float32.
        lengths: (items,) number of tokens of each.
    """

    embeddings: NDArray[np.float32]
    tokens: NDArray[np.float32]
    lengths: NDArray[np.int64]

    @property
    def queries(self) -> list[NDArray[np.float32]]:
        """The tokens of each item."""
        return np.split(self.tokens, np.cumsum(self.lengths)[:-1])

    def stored(self, dtype: TokenDtype, queries: NDArray[np.float32]) -> TokenStore:
        """Pack the tokens into a form, with a codebook of their own for such queries."""
        codec = TokenCodec.train(dtype, self.tokens, queries=queries)
        return TokenStore.from_arrays(codec, codec.pack(self.tokens), self.lengths)


@dataclass(frozen=True)
class Search:
    """One search direction: its queries, the searched items, and the right answers.

    Attributes:
        direction: Name of the direction.
        asking: Collection of the queries.
        modality: Modality of the queries.
        match: (queries, items) cosines of the embeddings.
        right: (queries, items) whether an item answers a query.
    """

    direction: Direction
    asking: SideData
    modality: Modality
    match: NDArray[np.float32]
    right: NDArray[np.bool_]

    def two_stage_r1(self, align: NDArray[np.float32], fusion: Fusion, count: int) -> float:
        """Return the percentage of queries whose first hit is right."""
        fused = fusion.of(self.direction).combine(align, self.match)
        hits = 0
        for scores, match, right in zip(fused, self.match, self.right, strict=True):
            candidates = largest(match, count)
            hits += bool(right[candidates[np.argmax(scores[candidates])]])
        return 100 * hits / len(align)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = figures_parser(__doc__)
    parser.add_argument("--index", type=Path, required=True, help="index to read")
    parser.add_argument("--candidates", type=int, default=100, help="candidates of a query")
    options = parser.parse_args(arguments)
    lines = measure(options.index, options.candidates)
    if options.json:
        print_json(lines)
        return
    names = list(next(iter(lines.values())))
    rows = [[dtype, *(f"{line[name]:.5g}" for name in names)] for dtype, line in lines.items()]
    print_rows(["form", *names], rows)


def measure(root: Path, candidates: int) -> dict[TokenDtype, dict[str, float]]:
    """Measure every form; the first one, float16, is the reference of the others."""
    folder = generation_folder(root, live_generation(root))
    images, texts = read_side(folder, "images"), read_side(folder, "texts")
    fusion = load_checkpoint(likely_model_folder(root)).fusion
    match = images.embeddings @ texts.embeddings.T
    right = pairs(folder)
    searches = [
        (Search("text_to_image", texts, "text", match.T.copy(), right.T), images, "t2i"),
        (Search("image_to_text", images, "image", match, right), texts, "i2t"),
    ]
    lines: dict[TokenDtype, dict[str, float]] = {}
    exact: dict[str, NDArray[np.float32]] = {}
    for dtype in TOKEN_DTYPES:
        line = lines.setdefault(dtype, {})
        for search, side, name in searches:
            store = side.stored(dtype, search.asking.tokens)
            align = alignment_with_all(search.asking.queries, search.modality, store)
            reference = exact.setdefault(name, align)
            if side is images:
                line["bytes_per_token"] = store.codec.token_bytes
                size = store.codec.token_bytes * _PHOTOS * _TOKENS_A_PHOTO
                line["million_photos_gib"] = size / 2**30
            served = np.argpartition(-search.match, candidates, axis=1)[:, :candidates]
            errors = np.take_along_axis(np.abs(align - reference), served, axis=1)
            line[f"{name}_score_error"] = float(errors.mean())
            line[f"{name}_two_stage_r1"] = search.two_stage_r1(align, fusion, candidates)
            line[f"{name}_loss"] = (
                lines["float16"][f"{name}_two_stage_r1"] - line[f"{name}_two_stage_r1"]
            )
            line[f"{name}_fidelity"] = fidelity(align, reference)
    return lines


def fidelity(scores: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Return the mean fraction of the reference's top 10 that is in the scores' top 10."""
    shares = [
        len(np.intersect1d(largest(own, _TOP), largest(exact, _TOP))) / min(_TOP, len(exact))
        for own, exact in zip(scores, reference, strict=True)
    ]
    return float(np.mean(shares))


def read_side(folder: Path, target: Target) -> SideData:
    """Read the arrays of one collection; accepts a manifest of any version."""
    place = folder / target
    return SideData(
        np.load(place / "embeddings.npy"),
        np.load(place / "tokens.npy").astype(np.float32),
        np.diff(np.load(place / "offsets.npy")),
    )


def pairs(folder: Path) -> NDArray[np.bool_]:
    """Read which text belongs to which photo, (photos, texts)."""
    with sqlite3.connect(folder / "images" / "items.sqlite") as database:
        rows = dict(database.execute("SELECT id, row FROM items"))
    with sqlite3.connect(folder / "texts" / "items.sqlite") as database:
        owners = database.execute("SELECT row, image_id FROM items").fetchall()
    right = np.zeros((len(rows), len(owners)), dtype=np.bool_)
    for row, image_id in owners:
        right[rows[image_id], row] = True
    return right


if __name__ == "__main__":
    main()
