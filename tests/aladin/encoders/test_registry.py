"""Registries whose classes are imported when they are looked up."""

import subprocess
import sys
from typing import Any

import pytest

from aladin_network.encoders.base import ImageEncoder, TextEncoder
from aladin_network.encoders.registry import IMAGE_ENCODERS, TEXT_ENCODERS, look_up


@pytest.mark.parametrize(
    ("registry", "kind", "names"),
    [
        (IMAGE_ENCODERS, ImageEncoder, ["hf", "naflex", "regions"]),
        (TEXT_ENCODERS, TextEncoder, ["hf", "gru", "lstm"]),
    ],
)
def test_every_registered_name_has_a_class(
    registry: dict[str, str], kind: type[Any], names: list[str]
) -> None:
    assert list(registry) == names
    for name in names:
        assert issubclass(look_up(registry, name, kind, "encoder"), kind)


def test_a_class_of_another_kind_is_refused() -> None:
    linear = {"linear": "torch.nn:Linear"}
    with pytest.raises(TypeError, match=r"torch\.nn:Linear is no ImageEncoder"):
        look_up(linear, "linear", ImageEncoder, "image_encoder")


def test_reading_a_checkpoint_or_an_index_imports_no_transformers() -> None:
    """They take seconds, which commands that build no network need not spend."""
    modules = "aladin_network.checkpoint, aladin_index.open, aladin_training.stages.run"
    found = f"import sys, {modules}; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
