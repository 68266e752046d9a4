"""How texts were cleaned in the training of a pretrained network, by what its files say.

Libraries do that beside the tokenizer, or not at all. As a part of the tokenizer, it is kept with
every checkpoint, and the places of tokens still count characters of the text as it was given.
Neither torch nor the transformers library is needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tokenizers import Regex, Tokenizer
from tokenizers.normalizers import Lowercase, Normalizer, Replace, Strip
from tokenizers.normalizers import Sequence as Normalizers

# Families that were trained on lower-cased texts. SigLIP 2 is of the first type, with the tokenizer
# of a language model that keeps the case: its files do not say that texts are lower-cased.
_LOWER_CASED = ("siglip", "siglip2", "siglip_text_model", "siglip2_text_model")
_SINGLE_SPACES = (Replace(Regex(r"\s+"), " "), Strip())
# The rule of SigLIP's training (`canonicalize_text` of big_vision): no punctuation, single spaces.
_WITHOUT_PUNCTUATION = (
    Replace("_", " "),
    Replace(Regex(r"[!-/:-@\[-`{-~]"), ""),
    *_SINGLE_SPACES,
)
_UNCLEANED = "A_Red,  b! "
# Where a configuration of open_clip says it, by itself or in the file of a whole model.
_OPEN_CLIP = ("text_cfg", "tokenizer_kwargs", "clean")


def clean_texts(tokenizer: Tokenizer, steps: Sequence[Normalizer]) -> None:
    """Let a tokenizer take some steps before its own, where its own do not do the same."""
    own = tokenizer.normalizer
    cleaned = Normalizers([*steps, own] if own is not None else list(steps))
    if steps and (
        own is None or own.normalize_str(_UNCLEANED) != cleaned.normalize_str(_UNCLEANED)
    ):
        tokenizer.normalizer = cleaned  # type: ignore[assignment]


def cleaning(settings: Callable[[str], Mapping[str, Any]]) -> list[Normalizer]:
    """Return how texts were cleaned in training.

    Args:
        settings: Returns the content of a JSON file of the source by its name; nothing if it is
            missing or is no object.
    """
    model, tokenizer = settings("config.json"), settings("tokenizer_config.json")
    exported = _at(settings("open_clip_config.json"), "model_cfg", *_OPEN_CLIP)
    exported = exported or _at(model, *_OPEN_CLIP)
    stated = tokenizer.get("do_lower_case")
    lower = (
        exported in ("lower", "canonicalize")
        or settings("sentence_bert_config.json").get("do_lower_case") is True
        or (model.get("model_type") in _LOWER_CASED if stated is None else stated is True)
    )
    kind = str(tokenizer.get("tokenizer_class")).removesuffix("Fast")
    bare = exported == "canonicalize" or kind == "SiglipTokenizer"
    spaces = _SINGLE_SPACES if "text_cfg" in model else ()  # as open_clip does for all
    return [*([Lowercase()] if lower else ()), *(_WITHOUT_PUNCTUATION if bare else spaces)]


def _at(data: Any, *keys: str) -> Any:
    """Return what nested objects hold under some keys, or None."""
    for key in keys:
        data = cast(Mapping[str, Any], data).get(key) if isinstance(data, Mapping) else None
    return data
