from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_network.conversion.oscar import read_oscar_config, read_oscar_tokenizer
from aladin_network.errors import CheckpointError


@pytest.fixture
def folder(make_official: Callable[[], Any], tmp_path: Path) -> Path:
    return make_official().write_oscar(tmp_path / "oscar")


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: each for key, each in values.items() if each is not ...}))


def test_the_configuration_is_berts(folder: Path) -> None:
    change_config(folder, hidden_act="relu", hidden_dropout_prob=0.3, layer_norm_eps=...)
    config = read_oscar_config(folder)
    bert = config.bert()
    assert (bert["model_type"], bert["hidden_size"], bert["num_hidden_layers"]) == ("bert", 24, 2)
    assert (bert["hidden_act"], bert["hidden_dropout_prob"]) == ("relu", 0.3)
    assert bert["layer_norm_eps"] == 1e-12  # which early files lack
    assert (config.img_feature_dim, config.use_img_layernorm) == (10, 1)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_size": ...}, "hidden_size"),
        ({"img_feature_dim": ...}, "img_feature_dim"),
        ({"img_feature_dim": 0}, "reads no regions"),
        ({"img_feature_type": "dis_code_t"}, "this network reads codes"),
        ({"pruned_heads": {"1": [0]}}, "pruned_heads"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers"),
    ],
)
def test_a_configuration_of_another_kind_is_refused(
    folder: Path, changes: dict[str, object], complaint: str
) -> None:
    change_config(folder, **changes)
    with pytest.raises(CheckpointError, match=f"config.json: .*{complaint}"):
        read_oscar_config(folder)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_configuration_that_cannot_be_read_is_named(folder: Path, content: str | None) -> None:
    path = folder / "config.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json: (cannot be read|expected an object)"):
        read_oscar_config(folder)


def test_the_tokenizer_splits_as_the_reference(
    folder: Path, make_official: Callable[[], Any], captions: list[str]
) -> None:
    vocabulary = make_official().vocabulary
    tokenizer = read_oscar_tokenizer(folder, len(vocabulary))
    for caption in captions[:3]:
        assert tokenizer.encode(caption).ids == make_official().ids(caption, "[CLS]")
    pieces = tokenizer.encode("The motorcycle, dogs").tokens
    assert pieces == ["[CLS]", "the", "motor", "##cycle", ",", "dogs", "[SEP]"]


def test_words_of_a_caption_are_never_special_tokens(folder: Path) -> None:
    pieces = read_oscar_tokenizer(folder, 100).encode("dog [SEP]").tokens
    assert pieces.count("[SEP]") == 1


def test_case_is_kept_where_the_folder_says_so(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    tokens = read_oscar_tokenizer(folder, 100).encode("Dog dog").tokens
    assert tokens == ["[CLS]", "[UNK]", "dog", "[SEP]"]
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')
    assert read_oscar_tokenizer(folder, 100).encode("Dog").tokens == ["[CLS]", "dog", "[SEP]"]
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": "no"}')
    with pytest.raises(CheckpointError, match="do_lower_case: expected true or false, got 'no'"):
        read_oscar_tokenizer(folder, 100)


def test_a_vocabulary_keeps_its_order_through_odd_entries(folder: Path) -> None:
    # U+2028 ends a line for Python's splitlines, and is an entry of BERT's own vocabulary's kind.
    entries = ["[PAD]", "\u2028", "[UNK]", "[CLS]", "[SEP]", "dog"]
    (folder / "vocab.txt").write_bytes("\r\n".join(entries).encode() + b"\r\n")
    assert read_oscar_tokenizer(folder, 6).encode("dog").ids == [3, 5, 4]


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (None, "cannot be read"),
        (["[PAD]", "[UNK]", "[CLS]", "dog"], r"it has no \[SEP\]"),
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(9))], "13 entries, .* vocab_size 12"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    folder: Path, entries: list[str] | None, complaint: str
) -> None:
    (folder / "vocab.txt").unlink()
    if entries is not None:
        (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    with pytest.raises(CheckpointError, match=f"vocab.txt: .*{complaint}"):
        read_oscar_tokenizer(folder, 12)


def test_tokens_beside_the_vocabulary_are_refused(folder: Path) -> None:
    (folder / "added_tokens.json").write_text("{}")
    read_oscar_tokenizer(folder, 100)
    (folder / "added_tokens.json").write_text('{"[IMG]": 100}')
    with pytest.raises(CheckpointError, match=r"added_tokens\.json: "):
        read_oscar_tokenizer(folder, 100)
