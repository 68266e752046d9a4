"""Late-interaction networks for texts: the tokens of both roles, and which folders are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, BertModel

from aladin_network.checkpoint import load_checkpoint, load_text_checkpoint, save_checkpoint
from aladin_network.conversion.multivector import convert_multivector
from aladin_network.errors import CheckpointError, ConfigError, InputError, TextTooLongError
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import alignment_scores, matching_scores
from tests.aladin.conversion.text_networks import (
    DOCUMENTS,
    LAYOUTS,
    QUERIES,
    write_dense,
    write_json,
    write_modules,
    write_of_library,
    write_of_pylate,
)
from tests.tensors import encode_documents, encode_texts

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def converted(source: Path, **options: Any) -> AladinModel:
    """The network of a folder, converted and loaded."""
    out = source.with_name(f"{source.name}-converted")
    convert_multivector(str(source), out, **options)
    return load_checkpoint(out).model


@pytest.fixture(scope="module")
def pylate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pylate") / "source"
    write_of_pylate(folder)
    return folder


@pytest.fixture(scope="module")
def model(pylate: Path) -> AladinModel:
    return converted(pylate)


def slow_tokens(source: Path, ids: list[int], attended: list[int]) -> Tensor:
    """The tokens of one text, by transformers and one matrix product."""
    network = BertModel.from_pretrained(source, add_pooling_layer=False).eval()
    states = network(torch.tensor([ids]), torch.tensor([attended])).last_hidden_state[0]
    weight = load_file(source / "1_Dense" / "model.safetensors")["linear.weight"]
    return F.normalize(states @ weight.T, dim=-1)


@torch.no_grad()
def test_a_query_is_extended_by_mask_tokens(pylate: Path, model: AladinModel) -> None:
    names = ["[CLS]", "[Q] ", "a", "red", "dog", "[SEP]", *["[MASK]"] * 6]
    ids = AutoTokenizer.from_pretrained(pylate).convert_tokens_to_ids(names)
    expected = slow_tokens(pylate, ids, [1] * 6 + [0] * 6)
    found = encode_texts(model, ["a red dog"]).item_tokens(0)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@torch.no_grad()
def test_a_document_is_cut_and_leaves_punctuation_out(pylate: Path, model: AladinModel) -> None:
    text = "dog, " * 12 + "star"
    names = ["[CLS]", "[D] ", *["dog", ","] * 8, "dog", "[SEP]"]
    ids = AutoTokenizer.from_pretrained(pylate).convert_tokens_to_ids(names)
    assert len(ids) == 20  # document_length
    every = slow_tokens(pylate, ids, [1] * 20)
    expected = every[[place for place, name in enumerate(names) if name != ","]]
    found = encode_documents(model, [text]).item_tokens(0)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", list(LAYOUTS))
@torch.no_grad()
def test_scores_do_not_depend_on_the_batch(name: str, tmp_path: Path) -> None:
    LAYOUTS[name].write(tmp_path / "source")
    model = converted(tmp_path / "source")
    assert model.text_only
    documents, queries = encode_documents(model, DOCUMENTS), encode_texts(model, QUERIES)
    assert torch.allclose(queries.tokens[queries.mask].norm(dim=-1), torch.ones(()), atol=1e-5)
    align, match = alignment_scores(documents, queries), matching_scores(documents, queries)
    for row, document in enumerate(DOCUMENTS):
        tokens = encode_documents(model, [document]).item_tokens(0)
        for column, query in enumerate(QUERIES):
            words = encode_texts(model, [query]).item_tokens(0)
            best = (words @ tokens.T).amax(dim=1).sum()
            torch.testing.assert_close(align[row, column], best, atol=1e-5, rtol=0)
            cosine = F.cosine_similarity(words.mean(0), tokens.mean(0), dim=0)
            torch.testing.assert_close(match[row, column], cosine, atol=1e-5, rtol=0)


@pytest.mark.clients
@pytest.mark.parametrize("name", list(LAYOUTS))
@pytest.mark.parametrize("attend", [False, True])
def test_tokens_and_ranking_are_those_of_the_library(
    name: str, attend: bool, tmp_path: Path
) -> None:
    from sentence_transformers import MultiVectorEncoder

    source = tmp_path / "source"
    LAYOUTS[name].write(source)
    settings = source / "config_sentence_transformers.json"
    if name == "pylate":
        kept = json.loads(settings.read_text())
        write_json(settings, kept | {"attend_to_expansion_tokens": attend})
    model = converted(source)
    library = MultiVectorEncoder(str(source), device="cpu")
    words, texts = library.encode_query(QUERIES), library.encode_document(DOCUMENTS)
    queries = encode_texts(model, QUERIES, truncate=True)
    documents = encode_documents(model, DOCUMENTS)
    for own, theirs in ((queries, words), (documents, texts)):
        for row, tokens in enumerate(theirs):
            torch.testing.assert_close(own.item_tokens(row), tokens, atol=1e-5, rtol=0)
    scores = library.similarity(words, texts)
    found = alignment_scores(documents, queries).T
    torch.testing.assert_close(found, scores, atol=1e-5, rtol=0)
    assert found.argsort(dim=1).tolist() == scores.argsort(dim=1).tolist()


def test_long_queries_are_refused_and_long_documents_cut(pylate: Path, model: AladinModel) -> None:
    long = "red " * 30
    with pytest.raises(TextTooLongError, match="33"):
        encode_texts(model, [long])
    assert encode_texts(model, [long], truncate=True).tokens.shape[1] == 12
    assert encode_documents(model, [long]).tokens.shape[1] == 20
    with pytest.raises(InputError, match="the text is empty"):
        encode_documents(model, [" "])
    shorter = converted_with(pylate, max_tokens=6)
    assert encode_documents(shorter, [long]).tokens.shape[1] == 6
    with pytest.raises(ConfigError, match=r"max_tokens is 3, the prefix .* alone are 3"):
        converted_with(pylate, max_tokens=3)


def converted_with(source: Path, **options: Any) -> AladinModel:
    out = source.with_name("-".join([source.name, *map(str, options.values())]))
    convert_multivector(str(source), out, **options)
    return load_checkpoint(out).model


def test_spans_and_shortened_texts_are_those_of_the_text(model: AladinModel) -> None:
    text, encoder = "a red dog.", model.text.encoder
    spans = encoder.spans(text)
    assert len(spans) == len(encode_texts(model, [text]).item_tokens(0))
    assert [text[start:end] for start, end in spans if start < end] == ["a", "red", "dog", "."]
    assert spans == sorted(spans)
    assert encoder.shortened(text, 5) == "a red"
    documents: Any = model.image.encoder
    assert documents.shortened(text, 6) == "a red dog"
    assert documents.shortened(text, 20) == text
    assert documents.count_tokens(text) == 7


def test_the_checkpoint_is_the_same_when_saved_again(
    pylate: Path, model: AladinModel, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "again", model)
    again, first = load_checkpoint(tmp_path / "again"), pylate.with_name("source-converted")
    assert again.model_id == load_checkpoint(first).model_id
    assert again.model.config == model.config
    assert load_checkpoint(first).alignment_trained
    assert not any(each.requires_grad for each in again.model.parameters())
    assert not list(again.model.image.encoder.parameters())
    query = encode_texts(load_text_checkpoint(tmp_path / "again").model, QUERIES[:1])
    torch.testing.assert_close(query.tokens, encode_texts(model, QUERIES[:1]).tokens)


def test_lower_case_is_taken_over(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_of_library(source, options={"do_lower_case": True})
    file = source / "tokenizer.json"
    data = json.loads(file.read_text())
    data["normalizer"] = None
    write_json(file, data)
    model = converted(source)
    upper, lower = encode_texts(model, ["A Red Dog"]), encode_texts(model, ["a red dog"])
    torch.testing.assert_close(upper.tokens, lower.tokens)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a task": ({"transformer_task": "fill-mask"}, {}, "transformer_task is 'fill-mask'"),
    "a modality": (
        {"modality_config": {"message": {"method_output_name": "last_hidden_state"}}},
        {},
        "expected texts alone",
    ),
    "processing": (
        {"processing_kwargs": {"text": {"padding": "max_length"}}},
        {},
        "processing_kwargs has text",
    ),
    "a strategy": ({"query_expansion": {"strategy": "all", "length": 8}}, {}, "got 'all' and 8"),
    "a token": (
        {"query_expansion": {"strategy": "min", "length": 8, "token": "[X]"}},
        {},
        r"no token '\[X\]'",
    ),
    "photos": ({}, {"keep_only_token_ids": [3]}, "keep_only_token_ids is for photos"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_options_that_a_checkpoint_cannot_have_are_refused(name: str, tmp_path: Path) -> None:
    options, mask, message = REFUSED[name]
    write_of_library(tmp_path / "source", options=options, mask=mask)
    with pytest.raises(CheckpointError, match=message) as caught:
        convert_multivector(str(tmp_path / "source"), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_modules_that_a_checkpoint_cannot_have_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_of_library(source)
    modules = json.loads((source / "modules.json").read_text())
    kinds = [(each["path"], each["type"]) for each in modules]

    def refused(message: str) -> None:
        with pytest.raises(CheckpointError, match=message):
            convert_multivector(str(source), tmp_path / "out")

    write_modules(source, *kinds[:-1])
    refused("expected a module Normalize: only cosines")
    write_modules(source, *kinds, ("5_Pool", "x.HierarchicalTokenPooling"))
    refused("expected no modules but .*, got HierarchicalTokenPooling")
    write_modules(source, *kinds[1:])
    refused("expected one Transformer, the first")
    write_modules(source, *kinds, ("2_Dense", kinds[2][1]))
    refused("expected no Dense after Normalize")
    write_modules(source, *kinds)
    (source / "2_Dense" / "model.safetensors").unlink()
    refused("pytorch_model.bin: no such file")
    write_dense(source / "6_Dense", 16, 12, activation_function="torch.nn.modules.activation.ELU")
    write_modules(source, kinds[0], ("6_Dense", kinds[2][1]), *kinds[3:])
    refused("unknown activation_function 'ELU'")
