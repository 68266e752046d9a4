"""Tokenizers as the hub has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_network.encoders.hf_text import load_tokenizer
from aladin_network.errors import CheckpointError


@pytest.mark.parametrize("family", ["clip", "metaclip_2", "chinese_clip", "siglip", "siglip2"])
def test_ids_and_padding_are_the_librarys_own(
    dual_encoder: Callable[[str], Any], family: str
) -> None:
    saved = dual_encoder(family)
    loaded = load_tokenizer(str(saved.folder))
    assert loaded.pad_id == saved.tokenizer.pad_token_id
    for text in ("A small RED circle,  läuft!", "公园里 two", " don't "):
        assert loaded.tokenizer.encode(text).ids == saved.tokenizer(text)["input_ids"]


def test_a_kind_that_runs_elsewhere_is_read_from_its_tokenizer_json(
    dual_encoder: Callable[[str], Any], tmp_path: Path
) -> None:
    """SigLIP's own class needs the sentencepiece package; the hub has the other file as well."""
    saved = dual_encoder("siglip")
    shutil.copytree(saved.folder, tmp_path / "source")
    file = tmp_path / "source" / "tokenizer_config.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"tokenizer_class": "SiglipTokenizer"})
    )
    loaded = load_tokenizer(str(tmp_path / "source"))
    assert loaded.pad_id == saved.tokenizer.pad_token_id
    text = "a small red circle"
    assert loaded.tokenizer.encode(text).ids == saved.tokenizer(text)["input_ids"]
    (tmp_path / "source" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="cannot load a tokenizer") as caught:
        load_tokenizer(str(tmp_path / "source"))
    assert "\n" not in str(caught.value)
    assert "there is no tokenizer.json" in str(caught.value)
