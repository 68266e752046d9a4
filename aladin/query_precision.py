"""The precision in which the service encodes texts; indexes are always built in float32."""

from __future__ import annotations

import copy
import threading
from typing import Literal
from weakref import WeakKeyDictionary

import torch

from aladin.model import AladinModel

Precision = Literal["float32", "bfloat16"]
PrecisionName = Literal["auto", "float32", "bfloat16"]

# Instructions that multiply bfloat16; without them it is emulated, slower than float32.
_BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")


def choose_precision(name: PrecisionName, device: torch.device) -> Precision:
    """Return the precision of a name.

    "auto" takes bfloat16 where the processor multiplies it. On one with AVX512-BF16 (EPYC, one
    thread) a text of a 6-layer MiniLM takes 4.6 ms for 8.7 alone, and 1.4 for 3.8 in a batch of
    16; on Flickr8k 99 % of the top 10 stay, and recall as it is. Photos stay float32: MobileNetV2
    in bfloat16 takes 11 ms for 24, but 6 % of the top 10 change. Dynamic int8 takes another third
    from a text and turns embeddings by ten degrees (cosine 0.98); torch means to give it up.

    Args:
        name: a precision, or "auto".
        device: of the network; on a card, "auto" is float32.
    """
    if name != "auto":
        return name
    capabilities = torch.cpu.get_capabilities()
    native = any(capabilities.get(each, False) for each in _BFLOAT16_INSTRUCTIONS)
    return "bfloat16" if native and device.type == "cpu" else "float32"


class QueryModels:
    """Copies of networks that encode texts in the precision of queries; safe to use from threads.

    What leaves them through `aladin.inference` is float32, as from the networks themselves.
    """

    def __init__(self, precision: Precision = "float32") -> None:
        """Copy nothing yet.

        Args:
            precision: float32 needs no copy.
        """
        self._precision: Precision = precision
        self._copies: WeakKeyDictionary[AladinModel, AladinModel] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def for_texts(self, model: AladinModel) -> AladinModel:
        """Return what encodes texts in the place of a network, made at the first call.

        Args:
            model: of an index, in float32 and evaluation mode; it stays as it is.
        """
        if self._precision == "float32":
            return model
        with self._lock:
            if model not in self._copies:
                self._copies[model] = _texts_in_bfloat16(model)
            return self._copies[model]


def _texts_in_bfloat16(model: AladinModel) -> AladinModel:
    """Copy all but the image tower, which is not asked for texts."""
    converted = copy.deepcopy(model, {id(model.image): model.image})
    for part in (converted.text, converted.alignment, converted.matching):
        part.to(torch.bfloat16)
    return converted
