"""The recurrent text encoders against a loop over single steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from aladin_network.config import TextEncoderConfig
from aladin_network.encoders.recurrent_text import (
    GRUTextEncoder,
    LSTMTextEncoder,
    RecurrentTextEncoder,
)
from aladin_network.errors import ConfigError
from tests.aladin.encoders.conftest import CAPTIONS

TEXTS = ["a circle", "two dogs run on a small red square", "red"]
SMALL: dict[str, object] = {"embedding_size": 5, "hidden_size": 6, "dropout": 0.0}
KINDS: list[type[RecurrentTextEncoder]] = [GRUTextEncoder, LSTMTextEncoder]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """The captions' words."""
    return GRUTextEncoder.learn_tokenizer(CAPTIONS, 100)


def build(
    tokenizer: Tokenizer, kind: type[RecurrentTextEncoder] = GRUTextEncoder, **options: object
) -> RecurrentTextEncoder:
    torch.manual_seed(0)
    config = TextEncoderConfig(name="gru", architecture=SMALL | options, max_tokens=16)
    return kind.from_source(config, tokenizer).eval()


def step_by_step(encoder: RecurrentTextEncoder, text: str, backward: bool) -> Tensor:
    """Run one direction's cell from token to token: (tokens, hidden)."""
    cell_type = nn.GRUCell if isinstance(encoder, GRUTextEncoder) else nn.LSTMCell
    cell = cell_type(encoder.embedding.embedding_dim, encoder.dim)
    suffix = "_reverse" if backward else ""
    for name, parameter in cell.named_parameters():
        parameter.data = getattr(encoder.network, f"{name}_l0{suffix}").detach()
    ids = encoder.tokenizer.encode(text).ids
    hidden, memory = torch.zeros(encoder.dim), torch.zeros(encoder.dim)
    states: list[Tensor] = []
    for number in reversed(ids) if backward else ids:
        vector = encoder.embedding.weight[number]
        if isinstance(cell, nn.LSTMCell):
            hidden, memory = cell(vector, (hidden, memory))
        else:
            hidden = cell(vector, hidden)
        states.append(hidden)
    return torch.stack(states[::-1] if backward else states)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_states_are_those_of_single_steps(
    tokenizer: Tokenizer, kind: type[RecurrentTextEncoder], bidirectional: bool
) -> None:
    encoder = build(tokenizer, kind, bidirectional=bidirectional)
    features = encoder(encoder.preprocess(TEXTS))
    assert encoder.dim == features.states.shape[-1] == 6
    for row, text in enumerate(TEXTS):
        expected = step_by_step(encoder, text, backward=False)
        if bidirectional:
            expected = (expected + step_by_step(encoder, text, backward=True)) / 2
        torch.testing.assert_close(features.states[row, 1 : 1 + len(expected)], expected)
        torch.testing.assert_close(features.states[row, 0], expected[-1])  # at <end>
        assert features.mask[row].sum() == 1 + len(expected)


def test_start_and_end_count_as_words_or_not(tokenizer: Tokenizer) -> None:
    text = "Red  dogs, run"
    counting, plain = build(tokenizer), build(tokenizer, special_tokens_are_words=False)
    batch = counting.preprocess([text, "red"])
    words = ["Red", "dogs", ",", "run"]
    assert counting(batch).content[0].tolist() == [False] + [True] * 6
    assert counting(batch).content[1].tolist() == [False] + [True] * 3 + [False] * 3
    assert [text[start:end] for start, end in counting.spans(text)] == ["", *words, ""]
    assert counting.spans(text)[-1] == (len(text), len(text))
    assert plain(batch).content[0].tolist() == [False, False] + [True] * 4 + [False]
    assert [text[start:end] for start, end in plain.spans(text)] == words
    for encoder in (counting, plain):
        assert encoder.preprocess([text]).content.sum() == 4  # what the user wrote


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_computes_in_float32_and_trains(
    tokenizer: Tokenizer, kind: type[RecurrentTextEncoder]
) -> None:
    encoder = build(tokenizer, kind)
    batch = encoder.preprocess(TEXTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = encoder(batch).states
    assert torch.equal(states, encoder(batch).states)
    states.square().sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_word_vectors_are_dropped_in_training_only(tokenizer: Tokenizer) -> None:
    encoder = build(tokenizer, dropout=0.4)
    batch = encoder.preprocess(TEXTS)
    assert torch.equal(encoder(batch).states, encoder(batch).states)
    encoder.train()
    assert not torch.equal(encoder(batch).states, encoder(batch).states)


def test_word_vectors_of_a_file_become_weights(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(
        ", 9 9 9 9 9\ndogs 1 2 3 4 5\nNew York 7 7 7 7 7\nred -0.5 0 0.25 1e-2 0\n",
        encoding="utf-8",
    )
    plain, encoder = build(tokenizer), build(tokenizer, vectors=str(file))
    expected = plain.embedding.weight.detach().clone()
    expected[tokenizer.token_to_id("dogs")] = torch.tensor([1.0, 2, 3, 4, 5])
    expected[tokenizer.token_to_id("red")] = torch.tensor([-0.5, 0, 0.25, 0.01, 0])
    assert torch.equal(encoder.embedding.weight, expected)
    assert encoder.embedding.weight.requires_grad
    # A checkpoint is rebuilt without the file.
    assert encoder.config == plain.config
    rebuilt = GRUTextEncoder(encoder.config, tokenizer)
    rebuilt.load_state_dict(encoder.state_dict())
    assert torch.equal(rebuilt.embedding.weight, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "not a file of word vectors"),
        ("dogs 1 2 3\n", "line 1: expected a word and 5 numbers"),
        ("dogs 1 2 3 4 5 6\n", "line 1: expected a word and 5 numbers"),
        ("x 1 2 3 4 5\ndogs 1 2\n", "line 2: expected a word and 5 numbers"),
        ("dogs 1 2 3 4 five\n", "not a file of word vectors .*five"),
        ("cats 1 2 3 4 5\n", r"holds none of the vocabulary's \d+ words"),
        ("", "holds none of the vocabulary's"),
    ],
)
def test_word_vectors_that_do_not_fit_are_refused(
    text: str | None, message: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "vectors.txt"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        build(tokenizer, vectors=str(file))
