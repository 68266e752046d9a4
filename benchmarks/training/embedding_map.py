"""t-SNE of the embeddings of photos and captions, as in DBL's figure 5: one panel a network.

    python -m benchmarks.training.embedding_map --data data/flickr8k/captions.jsonl --out map.png \
        runs/compare/runs/mh/seed-0/checkpoint runs/compare/runs/oas-rm/seed-0/checkpoint

Each photo is a dot, each of its captions a cross that a line joins with it; ten photos are in
colour, the same in all panels. t-SNE (van der Maaten and Hinton 2008) is scikit-learn's, on
cosine distances, with a fixed seed. It keeps neighbours near and nothing else: distances between
groups mean nothing. The table says how much of the network the map shows: R@1 of a caption among
the photos that are drawn, by cosine and by distance on the map, and the divergence that t-SNE ends
with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import InputError
from aladin_network.scoring.metrics import retrieval_ranks, summarize
from aladin_network.types import NullProgress
from aladin_training.comparison.drawing import save_figure, small_panels
from aladin_training.data.selection import read_split
from aladin_training.evaluation import encode_records
from benchmarks.lib.output import figures_parser, print_json, print_rows

_COLOURED = 10
_GREY = "#BBBBBB"
PERPLEXITY = 30.0


class EmbeddingMap(NamedTuple):
    """A map of the embeddings of one network.

    Attributes:
        photos: Place of each photo, (photos, 2) float64.
        captions: Place of each caption, (captions, 2) float64.
        r1: R@1 of captions among these photos by cosine, in percent.
        r1_on_map: The same by distance on the map.
        divergence: Kullback-Leibler divergence at which t-SNE ends.
    """

    photos: Tensor
    captions: Tensor
    r1: float
    r1_on_map: float
    divergence: float


def map_embeddings(
    photos: Tensor, captions: Tensor, photo_of_caption: Tensor, perplexity: float = PERPLEXITY
) -> EmbeddingMap:
    """Lay out photos and captions together.

    Args:
        photos: Embeddings of unit length, (photos, dim).
        captions: Embeddings of unit length, (captions, dim).
        photo_of_caption: Row of each caption's photo.
        perplexity: About how many neighbours count; at most a third of all points is used.
    """
    from sklearn.manifold import TSNE

    points = torch.cat([photos, captions]).double()
    tsne = TSNE(
        perplexity=min(perplexity, (len(points) - 1) / 3),
        metric="cosine",
        init="pca",
        random_state=0,
    )
    places = torch.from_numpy(tsne.fit_transform(points.numpy())).double()
    of_photos, of_captions = places[: len(photos)], places[len(photos) :]
    scores = {"r1": photos @ captions.T, "r1_on_map": -torch.cdist(of_photos, of_captions)}
    recalls = {
        name: summarize(retrieval_ranks(each, photo_of_caption)).text_to_image.r1
        for name, each in scores.items()
    }
    return EmbeddingMap(of_photos, of_captions, divergence=float(tsne.kl_divergence_), **recalls)


def draw(maps: Sequence[tuple[str, EmbeddingMap]], photo_of_caption: Tensor, file: Path) -> None:
    """Draw maps side by side.

    Args:
        maps: Name and map of each network.
        photo_of_caption: Row of each caption's photo, the same of all networks.
        file: PNG file to write.
    """
    from matplotlib import colormaps

    colours = [colormaps["tab10"](n) for n in range(_COLOURED)]
    figure, grid = small_panels(len(maps), width_in=5.5, height_in=5.5)
    for axes, (name, each) in zip(grid, maps, strict=True):
        for row, (x, y) in reversed(list(enumerate(each.photos.tolist()))):
            colour, over = (colours[row], 3) if row < _COLOURED else (_GREY, 1)
            for u, v in each.captions[photo_of_caption == row].tolist():
                axes.plot([x, u], [y, v], color=colour, linewidth=0.6, alpha=0.7, zorder=over)
                axes.plot(u, v, "x", color=colour, markersize=3, zorder=over)
            axes.plot(x, y, "o", color=colour, markersize=5, zorder=over + 1)
        axes.set_title(f"{name}\nR@1 {each.r1:.1f}, on the map {each.r1_on_map:.1f}", fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    save_figure(figure, file)


def main() -> None:
    """Draw the maps and print the table."""
    parser = figures_parser(__doc__)
    parser.add_argument("checkpoints", nargs="+", type=Path, help="folders of networks")
    parser.add_argument("--data", type=Path, required=True, help="data set with captions")
    parser.add_argument("--split", default="val", help="split of it")
    parser.add_argument("--photos", type=int, default=200, help="photos that are drawn")
    parser.add_argument("--out", type=Path, default=Path("embedding-map.png"), help="PNG file")
    options = parser.parse_args()
    networks = [(model_name(each), load_checkpoint(each)) for each in options.checkpoints]
    recipe = networks[0][1].provenance.recipe
    records = read_split(options.data, options.split, recipe)[: options.photos]
    if len(records) < 2:
        raise InputError(f"{options.data}: expected two photos with captions, got {len(records)}")
    photo_of_caption = torch.tensor(
        [row for row, record in enumerate(records) for _ in record.captions]
    )
    maps: list[tuple[str, EmbeddingMap]] = []
    for name, checkpoint in networks:
        photos, captions = encode_records(checkpoint.model, records, NullProgress())
        found = map_embeddings(photos.embedding, captions.embedding, photo_of_caption)
        maps.append((name, found))
    draw(maps, photo_of_caption, options.out)
    if options.json:
        figures = ("r1", "r1_on_map", "divergence")
        print_json([{"network": n} | {each: getattr(m, each) for each in figures} for n, m in maps])
        return
    columns = ["network", "R@1", "R@1 on the map", "divergence"]
    rows = [[n, f"{m.r1:.1f}", f"{m.r1_on_map:.1f}", f"{m.divergence:.2f}"] for n, m in maps]
    print_rows(columns, rows)
    print(options.out)


def model_name(folder: Path) -> str:
    """Return what tells a run's checkpoint from others.

    >>> model_name(Path("runs/compare/runs/mh/seed-0/checkpoint"))
    'mh/seed-0'
    >>> model_name(Path("models/clip"))
    'models/clip'
    """
    parts = folder.parts[:-1] if folder.name == "checkpoint" else folder.parts
    return "/".join(parts[-2:])


if __name__ == "__main__":
    main()
