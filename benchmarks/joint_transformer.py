"""Speed of matching, alignment and two-stage search beside a joint transformer (ALADIN, figure 2).

    python -m benchmarks.joint_transformer [--photos 1000 10000 100000] [--plot joint.png]
        [--curve CURVE.json --quality quality.png] [--json]

A joint transformer (OSCAR, VinVL) reads a text and the regions of a photo as one sequence, so a
query costs a pass for every photo. The other ways read the text once, with a transformer of the
same size, and compare it with what an index has stored. Both networks have random weights, which
take as long as trained ones. One thread; each network in the precision in which it is faster here.
Photos are synthetic, of 49 regions (see `benchmarks.lib.synthetic`); their index is built with the
default settings.

encode_ms     time of the text's transformer, part of every way but the joint one
pair_ms       time of the joint transformer for a text and a photo, in the fastest batches. Its time
              for a query is this times the number of photos: all pairs cost the same
matching      retrieval of the 100 nearest embeddings
alignment     the alignment with every photo
two_stage     retrieval of 100 candidates, and their alignment
joint         the joint transformer with every photo

*_queries_per_s   queries that one thread answers, including the transformer
*_over_joint      how many times the queries of the joint transformer those are
*_scores_over_joint  the same without the text's transformer, as if it took no time
text_in_pairs     how many pairs of a large batch take as long as the text alone. At N photos no way
                  can be more than N / text_in_pairs times as fast as the joint transformer

CURVE.json is a real network's quality by candidates, of `aladin evaluate ... --curve CURVE.json`:
--quality draws it against the time of a search of an encoded text, beside the times that the text's
transformer takes, and the joint transformer for as many photos.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from aladin_index.ann.exact_search import largest
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.settings import BuildSettings
from aladin_index.tokens.maxsim import alignment_with_all
from benchmarks.lib.measuring import time_in_turn, use_one_thread
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.lib.processes import in_fresh_process
from benchmarks.lib.synthetic import SyntheticPhotos, TextQueries, write_synthetic_index
from benchmarks.lib.synthetic_sources import REGIONS, TOKEN_DIM, find_source
from benchmarks.search.searches import CANDIDATES, TOP, TextSearches

WAYS = ("matching", "alignment", "two_stage")

_HEAD_WIDTH = 64
_VOCABULARY = 30_522
_SPECIAL_TOKENS = 2
_BATCHES = (1, 8, 32)
_DTYPES = (torch.float32, torch.bfloat16)


class JointTransformer(nn.Module):
    """Scores pairs of a text and a photo by one transformer over words and regions (OSCAR)."""

    def __init__(self, layers: int, width: int, region_width: int = TOKEN_DIM) -> None:
        """Create a transformer with random weights.

        Args:
            layers: Number of layers.
            width: Width of a layer, a multiple of 64.
            region_width: Number of values of a region.
        """
        super().__init__()
        self.bert = random_bert(layers, width)
        self.region_projection = nn.Linear(region_width, width)
        self.score = nn.Linear(width, 1)

    def forward(
        self,
        token_ids: Int[Tensor, "pairs words"],
        regions: Float[Tensor, "pairs regions region_width"],
    ) -> Float[Tensor, " pairs"]:
        """Return a score for each pair, computed from the first word's output."""
        words = self.bert.embeddings.word_embeddings(token_ids)
        sequence = torch.cat([words, self.region_projection(regions)], dim=1)
        return self.score(self.bert(inputs_embeds=sequence).last_hidden_state[:, 0]).squeeze(1)


def random_bert(layers: int, width: int) -> BertModel:
    """Make a BERT with random weights."""
    return BertModel(
        BertConfig(
            vocab_size=_VOCABULARY,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // _HEAD_WIDTH,
            intermediate_size=4 * width,
        ),
        add_pooling_layer=False,
    )


class Effort(NamedTuple):
    """Size of the networks, and number of repetitions.

    Attributes:
        layers: Number of layers of both transformers.
        width: Width of both transformers.
        passes: Number of timed passes of each network in each form.
        searches: Number of timed searches of each way.
    """

    layers: int
    width: int
    passes: int
    searches: int


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__, "200 photos and one narrow layer, a few seconds")
    parser.add_argument("--photos", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--layers", type=int, default=12, help="layers of both transformers")
    parser.add_argument("--width", type=int, default=768, help="their width, a multiple of 64")
    parser.add_argument("--source", type=Path, metavar="INDEX", help="index of real photos")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw queries a second")
    parser.add_argument("--curve", type=Path, metavar="JSON", help="a network's curve")
    parser.add_argument("--quality", type=Path, metavar="PNG", help="draw rsum of --curve by time")
    options = parser.parse_args()
    if (options.curve is None) != (options.quality is None):
        parser.error("--curve and --quality belong together")
    if options.width % _HEAD_WIDTH or options.width < _HEAD_WIDTH:
        parser.error(f"--width must be a multiple of {_HEAD_WIDTH}, not {options.width}")
    effort = Effort(options.layers, options.width, passes=7, searches=50)
    counts = options.photos
    if options.quick:
        counts, effort = [200], Effort(1, _HEAD_WIDTH, passes=2, searches=5)
    figures = measure(counts, effort, options.source)
    if options.plot is not None:
        draw(figures, options.plot)
    if options.quality is not None:
        draw_quality(figures, json.loads(options.curve.read_text()), options.quality)
    if options.json:
        print_json(figures)
    else:
        print_table(figures)


def measure(counts: Sequence[int], effort: Effort, source: Path | None) -> dict[str, Any]:
    """Time both networks, and the searches for each number of photos."""
    photos = SyntheticPhotos(find_source(source))
    words = typical_words(photos)
    figures: dict[str, Any] = {
        "source": photos.source.name,
        "layers": effort.layers,
        "width": effort.width,
        "words": words,
    }
    figures |= in_fresh_process(time_networks, words, effort)
    figures["text_in_pairs"] = figures["encode_ms"] / figures["pair_ms"]
    figures["sizes"] = []
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "index"
            settings = BuildSettings()
            in_fresh_process(write_synthetic_index, root, photos, count, settings)
            queries = photos.queries(effort.searches, count, seed=1)
            times_ms = in_fresh_process(time_searches, root, queries)
        figures["sizes"].append(
            {"photos": count} | compared(times_ms, figures["encode_ms"], count * figures["pair_ms"])
        )
    return figures


def typical_words(photos: SyntheticPhotos) -> int:
    """Return the median number of words of the source's captions."""
    captions = [each for of_photo in photos.source.captions for each in of_photo]
    return int(np.median([len(caption.words) for caption in captions]))


def time_networks(words: int, effort: Effort) -> dict[str, Any]:
    """Time a text alone, and a text with the regions of a photo.

    Args:
        words: Number of words of the text.
        effort: Size of the networks, and number of passes.
    """
    use_one_thread()
    torch.manual_seed(0)
    alone = random_bert(effort.layers, effort.width).eval()
    joint = JointTransformer(effort.layers, effort.width).eval()
    token_ids = torch.randint(_VOCABULARY, (max(_BATCHES), words + _SPECIAL_TOKENS))
    regions = torch.randn(max(_BATCHES), REGIONS, TOKEN_DIM)
    # A text is asked alone; a photo's pairs go through the network in batches.
    runs: dict[tuple[str, torch.dtype, int], Callable[[int], object]] = {}
    for dtype in _DTYPES:
        runs["encode", dtype, 1] = partial(_in_dtype, dtype, lambda: alone(token_ids[:1]))
        for size in _BATCHES:
            pairs = partial(joint, token_ids[:size], regions[:size])
            runs["pair", dtype, size] = partial(_in_dtype, dtype, pairs)
    # Names are the positions in `runs`.
    with torch.inference_mode():
        times = time_in_turn(
            {str(place): run for place, run in enumerate(runs.values())}, effort.passes, warm_up=1
        )
    figures: dict[str, Any] = {}
    for network in ("encode", "pair"):
        each_ms = {
            (dtype, size): float(np.median(times[str(place)])) / size
            for place, (name, dtype, size) in enumerate(runs)
            if name == network
        }
        dtype, size = min(each_ms, key=lambda form: each_ms[form])
        figures[f"{network}_ms"] = each_ms[dtype, size]
        figures[f"{network}_dtype"] = str(dtype).removeprefix("torch.")
        if network == "pair":
            figures["pair_batch"] = size
    return figures


def _in_dtype(dtype: torch.dtype, run: Callable[[], object], _turn: int) -> object:
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
        return run()


def time_searches(root: Path, queries: TextQueries) -> dict[str, float]:
    """Return the median milliseconds of each way, for texts that are already encoded."""
    use_one_thread()
    searches = len(queries.words)
    with open_index(root) as index:
        collection = index.collection("images").base
        asking = TextSearches(TwoStageSearcher(index), queries)

        def alignment(turn: int) -> object:
            words = queries.words[turn % searches]
            return largest(alignment_with_all([words], "text", collection.tokens)[0], TOP)

        # Not in turn: reading all tokens would leave the other two nothing in the caches.
        runs: dict[str, Callable[[int], object]] = {
            "matching": lambda turn: collection.candidates(
                queries.embeddings[turn % searches], CANDIDATES
            ),
            "two_stage": lambda turn: asking.search(turn, CANDIDATES),
            "alignment": alignment,
        }
        times = {way: time_in_turn({way: run}, searches)[way] for way, run in runs.items()}
    return {way: float(np.median(times[way])) for way in WAYS}


def compared(times_ms: dict[str, float], encode_ms: float, joint_ms: float) -> dict[str, float]:
    """Return the speed of each way, and how many times the joint transformer's it is.

    Args:
        times_ms: Time of each of `WAYS` for an encoded text.
        encode_ms: Time to encode a text.
        joint_ms: Time of the joint transformer for a text.
    """
    figures = {"joint_queries_per_s": 1000 / joint_ms}
    for way, scores_ms in times_ms.items():
        whole_ms = encode_ms + scores_ms
        figures[f"{way}_ms"] = scores_ms
        figures[f"{way}_queries_per_s"] = 1000 / whole_ms
        figures[f"{way}_over_joint"] = joint_ms / whole_ms
        figures[f"{way}_scores_over_joint"] = joint_ms / scores_ms
    return figures


def draw(figures: dict[str, Any], file: Path) -> None:
    """Plot the queries a second of every way over the number of photos, as a PNG file."""
    sizes = sorted(figures["sizes"], key=lambda each: each["photos"])
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.subplots()
    for way in (*WAYS, "joint"):
        speeds = [each[f"{way}_queries_per_s"] for each in sizes]
        axes.plot([each["photos"] for each in sizes], speeds, marker="o", label=_label(way))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("photos")
    axes.set_ylabel("queries a second, one thread")
    axes.set_title(f"transformers of {figures['layers']} layers of {figures['width']}")
    axes.legend()
    figure.savefig(file, format="png", dpi=120)


def draw_quality(figures: dict[str, Any], curve: dict[str, Any], file: Path) -> None:
    """Plot rsum over the time of a text query, beside a joint transformer's time, as a PNG file.

    On the left the searches of an encoded text, on the right what both transformers take.

    Args:
        figures: Times of both networks.
        curve: What `aladin evaluate --curve FILE.json` measured of an index.
        file: Where the figure goes.
    """
    photos = curve["items"]["text_to_image"]
    points = curve["points"]
    ms = [each["ms"]["text_to_image"]["median"] for each in points]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for rule, label in (("fitted", "two stages, fused"), ("papers", "the papers' rule")):
        rsums = [each[rule]["rsum"]["value"] for each in points]
        left.plot(ms, rsums, marker="o", label=label)
    for each, place_ms in zip(points, ms, strict=True):
        name = {1: "embedding", 10: "10", 100: "100", photos: "all"}.get(each["candidates"])
        if name is not None:
            place = place_ms, each["fitted"]["rsum"]["value"]
            left.annotate(name, place, xytext=(5, 7), textcoords="offset points")
    joint_ms = photos * figures["pair_ms"]
    right.axvline(figures["encode_ms"], linestyle="--", label="the text's transformer")
    right.axvline(joint_ms, color="black", linestyle=":", label="joint transformer")
    left.set_xlabel("ms after the text's transformer, one thread")
    right.set_xlabel("ms")
    left.set_ylabel("rsum, both directions")
    left.set_title(f"a search of {photos:,} photos by candidates")
    right.set_title(f"{figures['encode_ms']:.0f} ms and {joint_ms / 1000:.0f} s")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.legend(loc="lower right")
    right.set_xlim(figures["encode_ms"] / 3, joint_ms * 3)
    left.margins(0.15)
    figure.savefig(file, format="png", dpi=120)


def _label(way: str) -> str:
    return {"two_stage": "two stages", "joint": "joint transformer"}.get(way, way)


def print_table(figures: dict[str, Any]) -> None:
    """Print the networks' times in a line, and the ways in a table."""
    print(
        f"text alone {figures['encode_ms']:.1f} ms ({figures['encode_dtype']}), "
        f"text and photo {figures['pair_ms']:.1f} ms "
        f"({figures['pair_dtype']}, batches of {figures['pair_batch']}): "
        f"the text takes as long as {figures['text_in_pairs']:.2g} photos\n"
    )
    columns = ["photos", "way", "ms after encoding", "queries a second", "over joint"]
    rows: list[Sequence[object]] = []
    for size in figures["sizes"]:
        photos = f"{size['photos']:,}"
        joint = size["joint_queries_per_s"]
        rows.append([photos, _label("joint"), "", f"{joint:.3g}", 1])
        rows += [
            [
                photos,
                _label(way),
                f"{size[f'{way}_ms']:.2f}",
                f"{size[f'{way}_queries_per_s']:.3g}",
                f"{size[f'{way}_over_joint']:.3g}",
            ]
            for way in WAYS
        ]
    print_rows(columns, rows)


if __name__ == "__main__":
    main()
