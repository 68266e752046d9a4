"""Measures what other precisions than float32 cost in recall, and what they save in time.

    python -m benchmarks.search.precision CHECKPOINT DATA [--split val] [--photos 1000] [--json]

CHECKPOINT has graphs, DATA photos with captions. Both are encoded on one thread, photos and, 128
at a time, captions as by a build, and some captions one by one as queries:

float32       by ONNX Runtime
bfloat16      by OpenVINO for photos and texts, by torch for texts; on processors that multiply it
int8          by ONNX Runtime for texts: weights of matrix products are quantised by channel, what
              they are multiplied with while it is computed (dynamic quantisation)

ms            processor time of one item (`alone`: of a text as a query)
cosine        smallest and mean cosine of the embeddings with those of ONNX Runtime in float32
rsum_*        rsum by the exhaustive matching, alignment and fused scores, and its difference from
              that of float32 with its 95 % interval, by a paired bootstrap over the photos

Photos in bfloat16 are evaluated with texts in float32, texts in each way with photos in float32,
and both together in bfloat16.

Weights of eight bits have a sign on processors with VNNI. Others add pairs of products in 16 bits,
which overflow if one factor has a sign and the other has none: there weights have none either.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import CHECKPOINT_FILES, read_model_id
from aladin_network.graphs.files import (
    GRAPHS,
    describe_graphs,
    graph_path,
    read_graphs,
    write_manifest,
)
from aladin_network.graphs.loading import load_graphs
from aladin_network.inference import (
    Network,
    encode_documents,
    encode_images,
    encode_texts,
    multiplies_bfloat16,
    processor_flags,
)
from aladin_network.photos.decoding import read_image
from aladin_network.scoring.bootstrap import Interval, paired_bootstrap
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.metrics import Ranks, retrieval_ranks, summarize
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.scoring.two_stages import two_stage_ranks
from aladin_training.data import Record, read_records
from aladin_training.evaluation import score_encodings
from benchmarks.lib.measuring import one_thread
from benchmarks.lib.output import figures_parser, print_json, print_rows

_REFERENCE, _BFLOAT16 = "onnxruntime float32", "openvino bfloat16"
_SCORES = ("matching", "alignment", "fused")
_TEXTS_A_BATCH, _LONE_TEXTS = 128, 200
# Instructions that multiply eight bits with a sign by eight without, and add in 32.
_INT8_INSTRUCTIONS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


class Encoded(NamedTuple):
    """Items encoded in one way.

    Attributes:
        items: The encodings, in the order of the items.
        ms: Processor time of one item in milliseconds.
        alone_ms: That of a text encoded as a query, or None for photos.
    """

    items: Encoding
    ms: float
    alone_ms: float | None = None


class Cost(NamedTuple):
    """What a pair of ways costs.

    Attributes:
        photos: Way of the photos.
        texts: Way of the texts.
        rsum: rsum by score.
        difference: Difference from that of `_REFERENCE`, by score.
    """

    photos: str
    texts: str
    rsum: dict[str, float]
    difference: dict[str, Interval]


class Report(NamedTuple):
    """All figures; see the docstring of the module."""

    photos: dict[str, Encoded]
    texts: dict[str, Encoded]
    costs: list[Cost]


def measure(checkpoint: Path, records: Sequence[Record]) -> Report:
    """Encode in every way, and evaluate the pairs of ways.

    Args:
        checkpoint: Folder of a checkpoint with graphs.
        records: Photos with captions.
    """
    captions = [caption for record in records for caption in record.captions]
    loaded = load_checkpoint(checkpoint)
    by_torch = loaded.model
    ort = load_graphs(checkpoint, "onnxruntime").model
    with tempfile.TemporaryDirectory() as folder, one_thread():
        write_int8_copy(checkpoint, Path(folder))
        int8 = load_graphs(Path(folder), "onnxruntime").model
        same: dict[str, Network] = {_REFERENCE: ort}
        text_networks: dict[str, Network] = {_REFERENCE: ort, "onnxruntime int8": int8}
        if multiplies_bfloat16():
            same[_BFLOAT16] = load_graphs(checkpoint, "openvino", "bfloat16").model
            text_networks[_BFLOAT16] = same[_BFLOAT16]
            text_networks["torch bfloat16"] = by_torch.with_texts_in_bfloat16()
        photos = _encode_photos(same, records)
        texts = {name: _encode_texts(each, captions) for name, each in text_networks.items()}
    image_of_text = torch.tensor([row for row, each in enumerate(records) for _ in each.captions])

    def ranks_of(of_photos: str, of_texts: str) -> dict[str, Ranks]:
        sides = (_batch(photos[of_photos].items), _batch(texts[of_texts].items))
        scores = score_encodings(by_torch, *sides)
        match, align = scores["matching"], scores["alignment"]
        return {
            "matching": retrieval_ranks(match, image_of_text),
            "alignment": retrieval_ranks(align, image_of_text),
            "fused": two_stage_ranks(match, align, loaded.fusion, image_of_text, None),
        }

    pairs = [(_REFERENCE, name) for name in texts]
    if _BFLOAT16 in photos:
        pairs += [(_BFLOAT16, _REFERENCE), (_BFLOAT16, _BFLOAT16)]
    found = [ranks_of(*pair) for pair in pairs]
    costs: list[Cost] = []
    for pair, ranks in zip(pairs, found, strict=True):
        rsum = {name: summarize(each).rsum for name, each in ranks.items()}
        lost = {
            name: paired_bootstrap(each, found[0][name], image_of_text)
            for name, each in ranks.items()
        }
        costs.append(Cost(*pair, rsum, lost))
    return Report(photos, texts, costs)


def write_int8_copy(checkpoint: Path, folder: Path) -> None:
    """Write a checkpoint whose text graph has int8 weights into an empty folder.

    Args:
        checkpoint: Folder of a checkpoint with graphs.
        folder: Folder for links to its other files.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    has_sign = not _INT8_INSTRUCTIONS.isdisjoint(processor_flags())
    (folder / GRAPHS).mkdir()
    for path in (
        *(checkpoint / name for name in CHECKPOINT_FILES),
        *checkpoint.glob("onnx/image*"),
    ):
        (folder / path.relative_to(checkpoint)).symlink_to(path.absolute())
    quantize_dynamic(
        graph_path(checkpoint, "text"),
        graph_path(folder, "text"),
        op_types_to_quantize=["MatMul", "Gemm"],
        per_channel=True,
        weight_type=QuantType.QInt8 if has_sign else QuantType.QUInt8,
        use_external_data_format=True,
    )
    manifest = read_graphs(checkpoint, read_model_id(checkpoint))
    assert manifest is not None
    files = describe_graphs(folder / GRAPHS)
    write_manifest(folder / GRAPHS, replace(manifest, files=files))


def _encode_photos(
    networks: Mapping[str, Network], records: Sequence[Record]
) -> dict[str, Encoded]:
    """Encode photos in turn by each network, so that each photo is decoded once."""
    parts: dict[str, list[Encoding]] = {name: [] for name in networks}
    seconds = dict.fromkeys(networks, 0.0)
    for record in records:
        photo: Image.Image = read_image(record.photo)
        ready = next(iter(networks.values())).image.encoder.preprocess(photo)
        for name, network in networks.items():
            run = partial(encode_images, network, [ready])
            if not parts[name]:
                run()  # compiled, and its memory allocated
            found, taken = _timed(run)
            parts[name].append(found)
            seconds[name] += taken
    return {
        name: Encoded(Encoding.concatenate(each), 1000 * seconds[name] / len(records))
        for name, each in parts.items()
    }


def _encode_texts(network: Network, texts: Sequence[str]) -> Encoded:
    encode_documents(network, texts[:_TEXTS_A_BATCH])
    parts: list[Encoding] = []
    seconds = 0.0
    for start in range(0, len(texts), _TEXTS_A_BATCH):
        some = texts[start : start + _TEXTS_A_BATCH]
        found, taken = _timed(partial(encode_documents, network, some))
        parts.append(found)
        seconds += taken
    lone = texts[:_LONE_TEXTS]
    for text in lone:
        encode_texts(network, [text])  # every length was there before
    times = [_timed(partial(encode_texts, network, [text]))[1] for text in lone]
    alone_ms = 1000 * float(np.median(times))
    return Encoded(Encoding.concatenate(parts), 1000 * seconds / len(texts), alone_ms)


def _timed(run: Callable[[], Encoding]) -> tuple[Encoding, float]:
    started = time.process_time()
    found = run()
    return found, time.process_time() - started


def _batch(items: Encoding) -> EncodedBatch:
    return EncodedBatch(*map(torch.from_numpy, items))


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print tables or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("checkpoint", type=Path, help="a checkpoint with graphs")
    parser.add_argument("data", type=Path, help="photos with captions")
    parser.add_argument("--split", default="val")
    parser.add_argument("--photos", type=int, default=1000, help="most photos to take")
    given = parser.parse_args(words)
    records = read_records(given.data, given.split)[: given.photos]
    report = measure(given.checkpoint, records)
    kinds = {"photos": report.photos, "texts": report.texts}
    rows = [
        _plain(kind, name, each, kinds[kind])
        for kind in kinds
        for name, each in kinds[kind].items()
    ]
    if given.json:
        print_json({"encoding": rows, "costs": [each._asdict() for each in report.costs]})
        return
    print_rows(tuple(rows[0]), [tuple(_shown(each) for each in row.values()) for row in rows])
    print()
    columns = ("photos", "texts", *(f"rsum_{name}" for name in _SCORES))
    print_rows(
        columns,
        [(each.photos, each.texts, *map(partial(_cost, each), _SCORES)) for each in report.costs],
    )


def _plain(
    kind: str, name: str, found: Encoded, ways: Mapping[str, Encoded]
) -> dict[str, str | float | None]:
    cosines = (found.items.embedding * ways[_REFERENCE].items.embedding).sum(axis=1)
    return {
        "items": kind,
        "way": name,
        "ms": found.ms,
        "alone_ms": found.alone_ms,
        "min_cosine": float(cosines.min()),
        "mean_cosine": float(cosines.mean()),
    }


def _shown(value: str | float | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.4g}"


def _cost(cost: Cost, score: str) -> str:
    lost = cost.difference[score]
    return f"{cost.rsum[score]:.1f} ({lost.difference:+.2f}, {lost.low:+.2f} to {lost.high:+.2f})"


if __name__ == "__main__":
    main()
