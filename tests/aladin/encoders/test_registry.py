"""Registries whose classes are imported when they are looked up."""

import subprocess
import sys

import pytest
from torch import nn

from aladin_network.encoders.base import ImageEncoder
from aladin_network.encoders.registry import IMAGE_ENCODERS, TEXT_ENCODERS, EncoderClasses
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder


def test_every_registered_name_has_a_class() -> None:
    assert list(IMAGE_ENCODERS) == ["hf", "naflex", "regions"]
    assert list(TEXT_ENCODERS) == ["hf", "gru", "lstm"]
    assert all(issubclass(found, ImageEncoder) for found in IMAGE_ENCODERS.values())
    assert all(issubclass(found, TokenizedTextEncoder) for found in TEXT_ENCODERS.values())


def test_a_class_of_another_kind_is_refused() -> None:
    classes = EncoderClasses(ImageEncoder, {"linear": "torch.nn:Linear"})
    assert "linear" in classes and len(classes) == 1
    with pytest.raises(TypeError, match=r"torch\.nn:Linear is no ImageEncoder"):
        classes["linear"]
    assert EncoderClasses(nn.Module, {"linear": "torch.nn:Linear"})["linear"] is nn.Linear


def test_reading_a_checkpoint_or_an_index_imports_no_transformers() -> None:
    """They take seconds, which commands that build no network need not spend."""
    modules = "aladin_network.checkpoint, aladin_index.open, aladin_training.stages.run"
    found = f"import sys, {modules}; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
