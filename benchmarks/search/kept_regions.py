"""Cost and loss of storing some regions of each photo, on an index of photos and captions.

    python -m benchmarks.search.kept_regions --index INDEX --keep 24 32 [--tokens float16 4bit]
        [--json]

INDEX has float16 tokens of all regions of the photos, and texts with the ID of their photo. The
first caption of each photo is asked. The other captions choose the regions, those of one half of
the photos the regions of the other half's, so that neither a query nor a photo's own caption
chooses. For all regions, and for each number and each form of the tokens:

needed      the regions that near texts need are stored (`aladin index build --keep-regions`)
ward        for comparison: regions are merged by Ward's criterion to as many mean vectors, whose
            boxes are the unions of the merged regions' boxes

photo_bytes          bytes of a photo's tokens, including their scales and centroid IDs
million_photos_gib   size of the tokens of a million photos
t2i_fidelity         share of the top 10 by exhaustive alignment that is in the top 10 of float16
                     tokens of all regions; captions search photos
t2i_r1               R@1 in percent: 100 candidates by the embeddings, ordered by the fusion
i2t_fidelity, _r1    the same where the stored photos search the asked captions
same_region          share of the words of a photo's caption whose best region is the same one
evidence_iou         mean intersection over union of these words' best boxes with those of all
                     regions in float16
rerank_ms            median time to score 1,000 candidates for one caption, one thread
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from aladin_index.encode.kept_regions import BoxesOf, KeptRegions, PhotoRegions
from aladin_index.format.layout import generation_folder, live_generation
from aladin_index.format.models import likely_model_folder
from aladin_index.search.evidence import region_boxes
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.maxsim import alignment_with_all, alignment_with_candidates
from aladin_index.tokens.sample_texts import SampleTexts
from aladin_index.tokens.store import TokenStore
from aladin_network.checkpoint import load_checkpoint
from aladin_network.scoring.fusion import Fusion
from aladin_network.types import TOKEN_DTYPES, TokenDtype
from benchmarks.lib.measuring import one_thread, quiet_median_s
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.search.token_forms import Search, SideData, fidelity, pairs, read_side

_CANDIDATES, _TIMED, _REPETITIONS = 100, 1000, 100
# Boxes are fractions of a photo; grids do not depend on its size.
_SIZE_PX = (1000, 1000)

Floats = NDArray[np.float32]
Figures = dict[str, float]


@dataclass(frozen=True)
class Task:
    """What is asked, and of which photos.

    Attributes:
        photos: All regions of the photos.
        boxes: (regions, 4) boxes of the regions, the same for all photos.
        boxes_of: Returns them.
        captions: One caption of each photo, in their order.
        others: The other captions of each half of the photos.
        halves: For each photo the half that it belongs to, 0 or 1.
        fusion: Fusion of the checkpoint.
    """

    photos: SideData
    boxes: Floats
    boxes_of: BoxesOf
    captions: SideData
    others: list[SampleTexts]
    halves: NDArray[np.int64]
    fusion: Fusion

    def needed(self, count: int) -> tuple[SideData, list[Floats]]:
        """Keep the regions that captions of the other half of the photos need."""
        parts = _split(self.photos)
        tokens: list[Floats] = []
        boxes: list[Floats] = []
        kept = [KeptRegions(count, texts, self.boxes_of) for texts in reversed(self.others)]
        for half, embedding, part in zip(
            self.halves.tolist(), self.photos.embeddings, parts, strict=True
        ):
            photo = PhotoRegions(part, np.array([len(part)]), [None])
            chosen = kept[half].select(embedding[None], photo, [_SIZE_PX])
            tokens.append(chosen.tokens)
            assert chosen.boxes[0] is not None
            boxes.append(chosen.boxes[0])
        return self._with(tokens), boxes

    def ward(self, count: int) -> tuple[SideData, list[Floats]]:
        """Merge the regions of each photo."""
        tokens: list[Floats] = []
        boxes: list[Floats] = []
        for part in _split(self.photos):
            groups = fcluster(linkage(part, "ward"), count, "maxclust")
            of_group = [groups == group for group in np.unique(groups)]
            means = np.stack([part[each].mean(axis=0) for each in of_group])
            tokens.append(means / np.linalg.norm(means, axis=1, keepdims=True))
            first = [self.boxes[each, :2].min(axis=0) for each in of_group]
            last = [self.boxes[each, 2:].max(axis=0) for each in of_group]
            boxes.append(np.concatenate([first, last], axis=1))
        return self._with(tokens), boxes

    def _with(self, tokens: Sequence[Floats]) -> SideData:
        lengths = np.array([len(part) for part in tokens])
        return SideData(self.photos.embeddings, np.concatenate(tokens), lengths)


class Reference:
    """The figures of all regions in float16, which the others are compared with."""

    def __init__(self, task: Task, right: NDArray[np.bool_]) -> None:
        """Score all pairs.

        Args:
            task: What is asked.
            right: (photos, captions).
        """
        self.task = task
        match = task.photos.embeddings @ task.captions.embeddings.T
        self._to_photos = Search("text_to_image", task.captions, "text", match.T.copy(), right.T)
        self._right, self._match = right, match
        codec = TokenCodec("float16", task.photos.tokens.shape[1])
        self._captions = TokenStore.from_arrays(
            codec, codec.pack(task.captions.tokens), task.captions.lengths
        )
        self._scores: tuple[Floats, Floats] | None = None
        self._best = _best_boxes(task, _split(task.photos), [task.boxes] * len(right))

    def figures(self, stored: SideData, boxes: Sequence[Floats], dtype: TokenDtype) -> Figures:
        """Measure stored photos; those of all regions in float16 come first."""
        task = self.task
        words = np.concatenate([task.others[0].words, task.others[1].words])
        store = stored.stored(dtype, words)
        decoded = SideData(stored.embeddings, store.codec.unpack(store.stored), stored.lengths)
        to_texts = Search("image_to_text", decoded, "image", self._match, self._right)
        t2i = alignment_with_all(task.captions.queries, "text", store)
        i2t = alignment_with_all(decoded.queries, "image", self._captions)
        self._scores = self._scores or (t2i, i2t)
        best = _best_boxes(task, _split(decoded), boxes)
        photo_bytes = store.codec.token_bytes * float(stored.lengths.mean())
        rows = np.arange(store.count).repeat(-(-_TIMED // store.count))[:_TIMED]
        np.random.default_rng(0).shuffle(rows)
        asked = task.captions.queries
        seconds = quiet_median_s(
            lambda turn: alignment_with_candidates(asked[turn % len(asked)], "text", store, rows),
            _REPETITIONS,
        )
        return {
            "photo_bytes": photo_bytes,
            "million_photos_gib": photo_bytes * 1e6 / 2**30,
            "t2i_fidelity": fidelity(t2i, self._scores[0]),
            "t2i_r1": self._to_photos.two_stage_r1(t2i, task.fusion, _candidates(t2i)),
            "i2t_fidelity": fidelity(i2t, self._scores[1]),
            "i2t_r1": to_texts.two_stage_r1(i2t, task.fusion, _candidates(i2t)),
            "same_region": float((best == self._best).all(axis=1).mean()),
            "evidence_iou": float(overlap(best, self._best).mean()),
            "rerank_ms": 1000 * seconds,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = figures_parser(__doc__)
    parser.add_argument("--index", type=Path, required=True, help="index to read")
    parser.add_argument("--keep", type=int, nargs="+", required=True, help="numbers of regions")
    parser.add_argument("--tokens", nargs="+", choices=TOKEN_DTYPES, default=["float16", "4bit"])
    options = parser.parse_args(arguments)
    with one_thread():
        lines = measure(options.index, options.keep, options.tokens)
    if options.json:
        print_json(lines)
        return
    names = list(next(iter(lines.values())))
    rows = [[name, *(f"{line[each]:.4g}" for each in names)] for name, line in lines.items()]
    print_rows(["stored", *names], rows)


def measure(root: Path, keep: Sequence[int], dtypes: Sequence[TokenDtype]) -> dict[str, Figures]:
    """Measure all regions, and every number of them in every form."""
    task, right = read_task(root)
    reference = Reference(task, right)
    whole = [task.boxes] * len(right)
    lines = {"all, float16": reference.figures(task.photos, whole, "float16")}
    for dtype in dtypes:
        if dtype != "float16":
            lines[f"all, {dtype}"] = reference.figures(task.photos, whole, dtype)
    for count in keep:
        for name, choose in (("needed", task.needed), ("ward", task.ward)):
            stored, boxes = choose(count)
            for dtype in dtypes:
                lines[f"{count} {name}, {dtype}"] = reference.figures(stored, boxes, dtype)
    return lines


def read_task(root: Path) -> tuple[Task, NDArray[np.bool_]]:
    """Read an index; also returns which photo belongs to which asked caption."""
    folder = generation_folder(root, live_generation(root))
    photos, texts = read_side(folder, "images"), read_side(folder, "texts")
    right = pairs(folder)
    checkpoint = load_checkpoint(likely_model_folder(root))
    regions = int(photos.lengths[0])
    boxes_of = partial(region_boxes, checkpoint.model)
    boxes = np.array(boxes_of(regions, _SIZE_PX), dtype=np.float32)
    asked = right.argmax(axis=1)
    halves = np.arange(len(right)) % 2
    half_of_text = halves[right.argmax(axis=0)]
    rest = np.ones(len(texts.lengths), dtype=np.bool_)
    rest[asked] = False
    others = [_sample(texts, np.flatnonzero(rest & (half_of_text == half))) for half in (0, 1)]
    captions = _taken(texts, asked)
    task = Task(photos, boxes, boxes_of, captions, others, halves, checkpoint.fusion)
    return task, right[:, asked]


def _sample(texts: SideData, rows: NDArray[np.int64]) -> SampleTexts:
    taken = _taken(texts, rows)
    offsets = np.concatenate([[0], np.cumsum(taken.lengths)])
    return SampleTexts(taken.embeddings, taken.tokens, offsets)


def _taken(side: SideData, rows: NDArray[np.int64]) -> SideData:
    parts = _split(side)
    tokens = np.concatenate([parts[row] for row in rows.tolist()])
    return SideData(side.embeddings[rows], tokens, side.lengths[rows])


def _split(side: SideData) -> list[Floats]:
    return np.split(side.tokens, np.cumsum(side.lengths)[:-1])


def _candidates(scores: Floats) -> int:
    return min(_CANDIDATES, scores.shape[1])


def _best_boxes(task: Task, regions: Sequence[Floats], boxes: Sequence[Floats]) -> Floats:
    """Return the box of the best region of each word of each photo's caption."""
    best = [
        of_photo[(words @ part.T).argmax(axis=1)]
        for words, part, of_photo in zip(_split(task.captions), regions, boxes, strict=True)
    ]
    return np.concatenate(best)


def overlap(first: Floats, second: Floats) -> Floats:
    """Return the intersection over union of each box with the other one in its place."""
    low = np.maximum(first[:, :2], second[:, :2])
    high = np.minimum(first[:, 2:], second[:, 2:])
    shared = (high - low).clip(0).prod(axis=1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) for boxes in (first, second)]
    ratios: Floats = shared / (areas[0] + areas[1] - shared)
    return ratios


if __name__ == "__main__":
    main()
