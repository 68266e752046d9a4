"""The `hf` text encoder and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from aladin_network.config import TextEncoderConfig
from aladin_network.encoders.hf_text import HFTextEncoder
from aladin_network.encoders.vocabulary import train_tokenizer, train_word_tokenizer
from aladin_network.errors import TextTooLongError
from tests.aladin.encoders.conftest import CAPTIONS, WORDS, save

VISION = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32}


@pytest.fixture(scope="module")
def encoder(tokenizer: Tokenizer) -> HFTextEncoder:
    """A small random BERT."""
    torch.manual_seed(0)
    config = TextEncoderConfig(architecture={"model_type": "bert", **WORDS}, max_tokens=16)
    return HFTextEncoder.from_source(config, tokenizer).eval()


def load(folder: Path, **settings: Any) -> HFTextEncoder:
    config = TextEncoderConfig(source=str(folder), **settings)
    return HFTextEncoder.from_source(config, None).eval()


def test_cls_and_sep_are_real_but_no_content(encoder: HFTextEncoder) -> None:
    batch = encoder.preprocess(["red square", "a small red circle"])
    assert batch.mask.tolist() == [[True] * 4 + [False] * 2, [True] * 6]
    assert batch.content.tolist() == [
        [False, True, True, False, False, False],
        [False, True, True, True, True, False],
    ]
    assert batch.ids[0, 4:].tolist() == [0, 0]


def test_spans_are_the_characters_of_the_content_tokens(encoder: HFTextEncoder) -> None:
    text = "A small  red circle, réd"
    spans = encoder.spans(text)
    assert len(spans) == int(encoder.preprocess([text]).content.sum())
    assert [text[start:end] for start, end in spans][:4] == ["A", "small", "red", "circle"]
    assert "".join(text[start:end] for start, end in spans) == text.replace(" ", "")


def test_a_long_text_is_refused_or_cut(encoder: HFTextEncoder) -> None:
    text = " ".join(["red"] * 15)
    with pytest.raises(TextTooLongError, match="17 tokens, at most 16") as caught:
        encoder.preprocess(["red", text])
    assert (caught.value.length, caught.value.limit) == (17, 16)
    batch = encoder.preprocess([text], truncate=True)
    assert batch.ids.shape == (1, 16)
    assert batch.content.sum() == 14  # CLS and SEP are kept
    assert len(encoder.spans(text)) == 14
    assert encoder.preprocess([" ".join(["red"] * 14)]).ids.shape == (1, 16)


def test_the_beginning_of_a_text_with_a_number_of_tokens(encoder: HFTextEncoder) -> None:
    text = "a red dog, and two men"
    tokens = len(encoder.tokenizer.encode(text).ids)
    assert encoder.shortened(text, tokens) == text
    lengths: list[int] = []
    for most in range(3, tokens):
        kept = encoder.shortened(text, most)
        assert text.startswith(kept)
        assert len(encoder.tokenizer.encode(kept).ids) == most
        lengths.append(len(kept))
    assert lengths == sorted(set(lengths))
    # One word piece remains beside the special tokens.
    assert len(encoder.tokenizer.encode(encoder.shortened(text, 1)).ids) == 3
    assert encoder.shortened("", 1) == ""


def test_training_groups_texts_by_length(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States and gradients are those of one padded batch; the network sees less padding."""
    torch.manual_seed(0)
    config = TextEncoderConfig(architecture={"model_type": "bert", **WORDS}, max_tokens=16)
    encoder = HFTextEncoder.from_source(config, tokenizer).eval()
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    texts = [CAPTIONS[0], "a circle", CAPTIONS[1], "a dog", *["two dogs"] * 9]
    batch = encoder.preprocess(texts)
    with torch.no_grad():
        expected = encoder(batch)
    padded = [encoder.model(input_ids=batch.ids, attention_mask=batch.mask.long())]
    wanted = (padded[0].last_hidden_state * batch.mask[..., None]).pow(3).sum()
    gradients = torch.autograd.grad(wanted, list(encoder.model.parameters()), allow_unused=True)

    shapes: list[torch.Size] = []
    run = encoder.model.forward

    def counted(*, input_ids: torch.Tensor, **rest: torch.Tensor) -> object:
        shapes.append(input_ids.shape)
        return run(input_ids=input_ids, **rest)

    monkeypatch.setattr(encoder.model, "forward", counted)
    found = encoder.train()(batch)
    assert sorted(shapes) == [(3, 11), (10, 4)]
    assert found.mask.equal(expected.mask)
    assert found.content.equal(expected.content)
    real = batch.mask
    torch.testing.assert_close(found.states[real], expected.states[real], atol=1e-5, rtol=1e-5)
    got = torch.autograd.grad(
        (found.states * real[..., None]).pow(3).sum(),
        list(encoder.model.parameters()),
        allow_unused=True,
    )
    for one, other in zip(got, gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", ["bert", "clip", "siglip"])
def test_states_are_those_of_transformers(tmp_path: Path, tokenizer: Tokenizer, kind: str) -> None:
    words = WORDS | {"vocab_size": tokenizer.get_vocab_size()}
    pair = {"text_config": words, "vision_config": VISION}
    model = save(tmp_path, kind, tokenizer, **(words if kind == "bert" else pair))
    encoder = load(tmp_path)
    assert encoder.config.architecture is not None
    tower = kind if kind == "bert" else f"{kind}_text_model"
    assert encoder.config.architecture["model_type"] == tower
    batch = encoder.preprocess(CAPTIONS)
    # SigLIP reads 64 tokens, whatever the text, and attends to its padding.
    attended = None if kind == "siglip" else batch.mask.long()
    network = getattr(model, "text_model", model)
    with torch.inference_mode():
        expected = network(input_ids=batch.ids, attention_mask=attended).last_hidden_state
    found = encoder(batch)
    torch.testing.assert_close(found.states[found.mask], expected[batch.mask], atol=1e-5, rtol=1e-5)


def test_word_pieces_of_any_text_in_the_layout_of_bert(tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode("A RED circle")
    assert encoding.tokens == ["[CLS]", "a", "red", "circle", "[SEP]"]
    assert encoding.special_tokens_mask == [1, 0, 0, 0, 1]
    assert "[UNK]" not in tokenizer.encode("squared").tokens  # falls into known pieces
    assert tokenizer.encode("犬").tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_whole_words_by_frequency_between_start_and_end() -> None:
    # a four times, dog twice; of the words seen once the alphabet's first ones.
    tokenizer = train_word_tokenizer(["a dog", "A cat, a dog.", "a bird"], 8)
    vocabulary = tokenizer.get_vocab()
    words = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog", ",", "."]
    assert sorted(vocabulary, key=vocabulary.__getitem__) == words
    encoding = tokenizer.encode("A DOG, a bird and <unk>")
    assert encoding.tokens[:6] == ["<start>", "a", "dog", ",", "a", "<unk>"]
    assert encoding.special_tokens_mask == [1, *[0] * (len(encoding.tokens) - 2), 1]
    assert train_word_tokenizer(CAPTIONS, 1).get_vocab_size() == 4  # special tokens always get in
    for train in (train_tokenizer, train_word_tokenizer):
        bounded = train(CAPTIONS * 10, 60)
        assert bounded.get_vocab_size() <= 60
        assert bounded.to_str() == train(CAPTIONS * 10, 60).to_str()
