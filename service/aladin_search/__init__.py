"""Search photos with words and words with photos, from Python.

    import aladin_search

    index = aladin_search.build(images="photos/", out="INDEX")  # by CLIP
    hits = index.search("two dogs in the snow", k=5)
    print(hits[0].id, hits[0].score)
    hits  # in a notebook: the photos

This is the documented interface for other people's programs (docs/PYTHON.md); the packages below
it may change. Importing it takes milliseconds: torch and FAISS are imported when an index is opened
or built, or a network is trained or evaluated.

open        an existing index
build       an index of photos, texts or both
train       a network from a recipe
recipes     the recipes of this package
evaluate    a network on photos with captions
Index       what `open` and `build` return: search, list, add, delete, evaluate
Hits        what a search returns: a sequence of `Hit`
Hit         one photo or text, with scores, metadata and evidence
Term        a term of a query of several, beside its words, with a weight
Item        one photo or text of a list
Field       a metadata field with its values
Error       the base class of all errors; `InputError` and others are subclasses
"""

from __future__ import annotations

from aladin_index.search.request import SearchTerm as Term
from aladin_index.search.results import SearchHit as Hit
from aladin_network.errors import AladinError as Error
from aladin_network.errors import (
    CheckpointError,
    ConfigError,
    DuplicateItemError,
    IndexNotReadyError,
    InputError,
    NoSuchTargetError,
    UnknownItemError,
)
from aladin_search.functions import build, evaluate, open, recipes, train
from aladin_search.hits import Hits
from aladin_search.index import Index
from aladin_search.listing import Field, Item

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DuplicateItemError",
    "Error",
    "Field",
    "Hit",
    "Hits",
    "Index",
    "IndexNotReadyError",
    "InputError",
    "Item",
    "NoSuchTargetError",
    "Term",
    "UnknownItemError",
    "build",
    "evaluate",
    "open",
    "recipes",
    "train",
]
