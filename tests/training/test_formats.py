"""Recipes train on tars and BEIR folders as on the same photos in files of their own."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from pathlib import Path

import pytest
import torch

from aladin_network.errors import DataError
from aladin_network.types import NullProgress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.offline_negatives import MinedFrom, load_negatives
from aladin_training.config.recipe import load_recipe
from aladin_training.data import read_records
from aladin_training.mining.miner import mine_file
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.run import run_recipe


def test_the_inputs_of_a_run_on_tars_are_those_of_a_run_on_files(
    recipe_path: Path, data_set: Path, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for record in read_records(data_set):
            details = {"id": record.id, "split": record.split, "captions": record.captions}
            content = {"png": record.photo.read(), "json": json.dumps(details).encode()}
            for suffix, data in content.items():
                info = tarfile.TarInfo(f"{record.id.removesuffix('.png')}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    recipe = load_recipe(recipe_path)
    data = dataclasses.replace(
        recipe.data, source=str(tmp_path / "{0..0}.tar"), cache=str(tmp_path / "cache")
    )
    of_files = prepare_run(recipe, NullProgress())
    of_tars = prepare_run(dataclasses.replace(recipe, data=data), NullProgress())
    assert of_tars.train_set.digest == of_files.train_set.digest
    assert of_tars.validation_set.digest == of_files.validation_set.digest
    rows, views = list(range(12)), [0] * 12
    found, expected = (
        each.train_set.read_by(each.model).inputs.photos.get(rows, views)
        for each in (of_tars, of_files)
    )
    assert not isinstance(found, torch.Tensor)
    assert not isinstance(expected, torch.Tensor)
    assert torch.equal(found.states, expected.states)


def test_a_run_on_a_beir_folder_trains_on_its_split_and_validates_among_all_photos(
    recipe_path: Path, data_set: Path, tmp_path: Path
) -> None:
    """Twelve photos of the corpus are asked for in training, the other six in validation."""
    corpus: list[str] = []
    queries: list[str] = []
    qrels = {"train": ["query-id\tcorpus-id\tscore"], "dev": ["query-id\tcorpus-id\tscore"]}
    for record in read_records(data_set):
        corpus.append(json.dumps({"_id": record.id, "image": str(record.photo.path)}))
        for name, caption in zip(record.caption_ids, record.captions, strict=True):
            queries.append(json.dumps({"_id": name, "text": caption}))
            split = "train" if record.split == "train" else "dev"
            qrels[split].append(f"{name}\t{record.id}\t1")
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    (folder / "queries.jsonl").write_text("\n".join(queries))
    for split, lines in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines))
    cache = tmp_path / "cache"
    recipe = load_recipe(
        recipe_path,
        [f"data.source={folder}", f"data.cache={cache}", "final=joint", "stage.joint.epochs=1"],
    )

    prepared = prepare_run(recipe, NullProgress())

    assert isinstance(prepared.train_set, PairDataset)
    of_files = prepare_run(load_recipe(recipe_path), NullProgress()).train_set
    assert prepared.train_set.digest == of_files.digest
    counts = [len(captions) for captions in prepared.validation_set.captions_of_photo]
    assert counts == [0] * 12 + [1, 2, 3] * 2
    run = run_recipe(recipe, tmp_path / "run")
    out = tmp_path / "negatives.safetensors"
    mine_file(run.checkpoint, folder, "train", out, cache=cache, num_texts=4, num_images=2)
    negatives = load_negatives(
        out,
        MinedFrom(data=of_files.digest, model_id=None, score="matching", num_texts=4, num_images=2),
    )
    assert negatives.images.shape == (24, 2)

    (folder / "qrels" / "dev.tsv").write_text(qrels["dev"][0] + "\n")
    with pytest.raises(DataError, match="no photo of split 'val' has a caption"):
        prepare_run(recipe, NullProgress())
