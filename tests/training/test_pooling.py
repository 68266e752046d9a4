"""The recipe `pooling` fits the embedding of a converted network to its alignment."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.checkpoint import load_checkpoint
from aladin_network.conversion.multivector import convert_multivector
from aladin_network.errors import ConfigError, DataError
from aladin_network.scoring.scores import EncodedBatch, alignment_scores, matching_scores
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import find_recipe
from aladin_training.data.beir import read_text_pairs
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.stages.run import run_recipe
from tests.aladin.conversion.late_interaction import FAMILIES
from tests.aladin.conversion.text_networks import WORDS, write_of_pylate
from tests.tensors import encode_documents, encode_photos, encode_texts

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def write_pairs(folder: Path, count: int) -> tuple[list[str], list[str]]:
    """A BEIR folder of texts; each document answers one query."""
    drawn = random.Random(4)
    documents = [" ".join(drawn.choices(WORDS[:-1], k=drawn.randint(3, 12))) for _ in range(count)]
    queries = [" ".join(drawn.sample(text.split(), k=2)) for text in documents]
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = [{"_id": f"{name[0]}{n}", "text": text} for n, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for split, rows in (("train", range(count)), ("dev", range(0, count, 2))):
        pairs = [f"q{n}\tc{n}\t1" for n in rows]
        table = "\n".join(["query-id\tcorpus-id\tscore", *pairs])
        (folder / "qrels" / f"{split}.tsv").write_text(table)
    return documents, queries


def run_pooling(start: Path, data: Path, *more: str) -> Path:
    """Run the shipped recipe for a few steps; return the checkpoint."""
    settings = [
        f"start={start}",
        f"data.source={data}",
        f"data.cache={data.parent / 'cache'}",
        "stage.pooling.batch_size=16",
        "stage.pooling.schedule.warmup_steps=0",
        *more,
    ]
    recipe = load_recipe(find_recipe("pooling"), settings)
    return run_recipe(recipe, start.parent / "run").checkpoint


def distance(documents: EncodedBatch, queries: EncodedBatch) -> float:
    """The loss of the recipe."""
    loss = ListNetLoss(temperature=20.0)
    scores = matching_scores(documents, queries), alignment_scores(documents, queries)
    return float(loss(*scores))


def test_embeddings_of_texts_come_closer_to_the_alignment(tmp_path: Path) -> None:
    write_of_pylate(tmp_path / "source")
    convert_multivector(str(tmp_path / "source"), tmp_path / "start", pooling="learned")
    documents, queries = write_pairs(tmp_path / "pairs", 48)
    trained = run_pooling(tmp_path / "start", tmp_path / "pairs", "stage.pooling.epochs=8")
    before, after = load_checkpoint(tmp_path / "start").model, load_checkpoint(trained).model
    assert load_checkpoint(trained).alignment_trained
    old = encode_documents(before, documents), encode_texts(before, queries)
    new = encode_documents(after, documents), encode_texts(after, queries)
    for earlier, later in zip(old, new, strict=True):
        assert torch.equal(earlier.tokens, later.tokens)
    assert distance(*new) < distance(*old) - 0.02  # of which most is the entropy of the alignment


def test_embeddings_of_photos_are_trained_too(tmp_path: Path) -> None:
    FAMILIES["colpali"](tmp_path / "source")
    convert_multivector(str(tmp_path / "source"), tmp_path / "start", pooling="learned")
    generator, lines, photos = np.random.default_rng(0), list[str](), list[Image.Image]()
    for number in range(8):
        pixels = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        photos.append(Image.fromarray(pixels).resize((32, 32)))
        photos[-1].save(tmp_path / f"{number}.png")
        line = {"image": f"{number}.png", "captions": [" ".join(WORDS[number : number + 3])]}
        lines += [json.dumps(line | {"split": "train"})]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    more = ("data.validation_split=train", "stage.pooling.epochs=2")
    trained = run_pooling(tmp_path / "start", tmp_path / "data.jsonl", *more)
    before, after = load_checkpoint(tmp_path / "start").model, load_checkpoint(trained).model
    old, new = encode_photos(before, photos), encode_photos(after, photos)
    assert torch.equal(old.tokens, new.tokens)
    assert not torch.allclose(old.embedding, new.embedding, atol=1e-4)


def test_text_pairs_are_read_by_split(tmp_path: Path) -> None:
    documents, queries = write_pairs(tmp_path / "pairs", 6)
    qrels = tmp_path / "pairs" / "qrels" / "train.tsv"
    # A query belongs to its most relevant document, the first of equal ones.
    qrels.write_text("query-id\tcorpus-id\tscore\nq0\tc1\t1\nq0\tc2\t2\nq1\tc2\t1\nq2\tc3\t0\n")
    [record] = read_text_pairs(tmp_path / "pairs", "train")
    assert (record.id, record.document) == ("c2", documents[2])
    assert record.captions == (queries[0], queries[1])
    assert [each.id for each in read_text_pairs(tmp_path / "pairs", "val")] == ["c0", "c2", "c4"]
    qrels.write_text("query-id\tcorpus-id\tscore\nq0\tc9\t1\n")
    with pytest.raises(DataError, match=r"id 'c9' is not in corpus\.jsonl"):
        read_text_pairs(tmp_path / "pairs", "train")
    qrels.write_text("query-id\tcorpus-id\tscore\nq0\tc1\t0\n")
    with pytest.raises(DataError, match="split 'train' has no relevant document"):
        read_text_pairs(tmp_path / "pairs", "train")
    with pytest.raises(DataError, match="the network is for texts alone"):
        read_text_pairs(tmp_path / "pairs" / "corpus.jsonl", None)
    line = json.dumps({"_id": "c0", "image": "a.png"})
    (tmp_path / "pairs" / "corpus.jsonl").write_text(line)
    with pytest.raises(DataError, match="expected texts, got photos"):
        read_text_pairs(tmp_path / "pairs", "train")


def test_streams_of_photos_are_refused_by_a_network_for_texts(tmp_path: Path) -> None:
    write_of_pylate(tmp_path / "source")
    convert_multivector(str(tmp_path / "source"), tmp_path / "start", pooling="learned")
    write_pairs(tmp_path / "pairs", 4)
    with pytest.raises(ConfigError, match="reads texts only: expected no regions and no stream"):
        run_pooling(tmp_path / "start", tmp_path / "pairs", "data.stream.shuffle=100")
