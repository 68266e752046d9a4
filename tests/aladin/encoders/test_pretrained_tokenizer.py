"""Tokenizers as the hub has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import normalizers

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import read_tokenizer
from aladin_network.conversion.towers import TowersOptions, convert_towers
from aladin_network.encoders.hf_text import load_tokenizer
from aladin_network.errors import CheckpointError
from tests.tensors import encode_texts


def open_clip(clean: str) -> dict[str, Any]:
    return {"model_cfg": {"text_cfg": {"tokenizer_kwargs": {"clean": clean}}}}


@pytest.mark.parametrize(
    "family", ["clip", "metaclip_2", "chinese_clip", "siglip", "siglip2", "siglip2-fixed"]
)
def test_ids_and_padding_are_the_librarys_own(
    dual_encoder: Callable[[str], Any], family: str
) -> None:
    saved = dual_encoder(family)
    loaded = load_tokenizer(str(saved.folder))
    assert loaded.pad_id == saved.tokenizer.pad_token_id
    for text in ("A small RED circle,  läuft!", "公园里 two", " don't "):
        assert loaded.tokenizer.encode(text).ids == saved.tokenizer(text)["input_ids"]


@pytest.mark.parametrize("family", ["siglip", "siglip2", "siglip2-fixed"])
def test_a_model_of_lower_cased_texts_lower_cases_and_a_converted_copy_does_too(
    dual_encoder: Callable[[str], Any], tmp_path: Path, family: str
) -> None:
    saved = dual_encoder(family)
    copy = tmp_path / "converted"
    convert_towers(str(saved.folder), copy, TowersOptions())
    loaded = load_tokenizer(str(saved.folder)).tokenizer
    for tokenizer in (loaded, read_tokenizer(copy)):
        ids = tokenizer.encode("a red circle").ids
        assert tokenizer.encode("A RED Circle").ids == ids
        assert len(set(ids)) > 2
    # Both ways to the graphs and to the network read the checkpoint's tokenizer.
    embeddings = load_checkpoint(copy).model.eval()
    upper, lower = encode_texts(embeddings, ["A RED circle", "a red circle"]).embedding
    torch.testing.assert_close(upper, lower)


def _with_files(source: Path, folder: Path, **files: dict[str, Any]) -> Path:
    """Copy a model's folder, and add keys to some of its JSON files."""
    shutil.copytree(source, folder)
    for name, values in files.items():
        file = folder / f"{name}.json"
        known = json.loads(file.read_text("utf-8")) if file.exists() else {}
        file.write_text(json.dumps(known | values), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("family", "files", "red"),
    [
        # Gemma's tokenizer of a family that was trained on lower-cased texts, unless its files
        # say otherwise.
        ("siglip2-fixed", {"tokenizer_config": {"do_lower_case": False}}, "A_RED, b!"),
        ("siglip2-fixed", {}, "a_red, b!"),
        ("siglip", {}, "a red b"),
        ("siglip", {"tokenizer_config": {"do_lower_case": False}}, "A RED b"),
        # Any other family by its files alone.
        ("metaclip_2", {}, "A_RED, b!"),
        ("metaclip_2", {"tokenizer_config": {"do_lower_case": True}}, "a_red, b!"),
        ("metaclip_2", {"sentence_bert_config": {"do_lower_case": True}}, "a_red, b!"),
        ("metaclip_2", {"open_clip_config": open_clip("lower")}, "a_red, b!"),
        ("metaclip_2", {"open_clip_config": open_clip("canonicalize")}, "a red b"),
        ("metaclip_2", {"open_clip_config": open_clip("whitespace")}, "A_RED, b!"),
        ("metaclip_2", {"open_clip_config": {"model_cfg": ["damaged"]}}, "A_RED, b!"),
    ],
)
def test_texts_are_cleaned_as_the_files_say(
    dual_encoder: Callable[[str], Any],
    tmp_path: Path,
    family: str,
    files: dict[str, Any],
    red: str,
) -> None:
    folder = _with_files(dual_encoder(family).folder, tmp_path / "source", **files)
    tokenizer = load_tokenizer(str(folder)).tokenizer
    assert tokenizer.normalizer is not None or red == "A_RED, b!"
    normalizer = tokenizer.normalizer or normalizers.Sequence([])
    assert normalizer.normalize_str("A_RED,  b!").replace("▁", " ").replace("  ", " ") == red


def test_a_kind_that_runs_elsewhere_is_read_from_its_tokenizer_json(
    dual_encoder: Callable[[str], Any], tmp_path: Path
) -> None:
    """SigLIP's own class needs the sentencepiece package; the hub has the other file as well."""
    saved = dual_encoder("siglip")
    shutil.copytree(saved.folder, tmp_path / "source")
    loaded = load_tokenizer(str(tmp_path / "source"))
    assert loaded.pad_id == saved.tokenizer.pad_token_id
    text = "a small red circle"
    assert loaded.tokenizer.encode(text).ids == saved.tokenizer(text)["input_ids"]
    (tmp_path / "source" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="cannot load a tokenizer") as caught:
        load_tokenizer(str(tmp_path / "source"))
    assert "\n" not in str(caught.value)
    assert "there is no tokenizer.json" in str(caught.value)
