"""Reading of folders of late-interaction networks for texts alone.

Three layouts are known: that of sentence-transformers 6 (`MultiVectorEncoder`), that of PyLate up
to 3, whose prefixes, lengths and punctuation are options of the whole model, and that of the
original ColBERT (``HF_ColBERT``), with ``artifact.metadata``.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any, NamedTuple, cast

from aladin_network.errors import CheckpointError

# Classes of modules by the last part of their names; PyLate's Dense is read as the library's own.
_DENSE, _MASK, _NORMALIZE, _TRANSFORMER = "Dense", "MultiVectorMask", "Normalize", "Transformer"
_OPTIONS_FILE = "sentence_bert_config.json"
# Values of options that change no token.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
    "unpad_inputs": (None, False, True),
    "tokenizer_name_or_path": (None,),
}
_OF_LOADING = ("dtype", "torch_dtype", "attn_implementation", "trust_remote_code")
_PYLATE = (
    "query_prefix",
    "document_prefix",
    "query_length",
    "document_length",
    "query_expansion",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
    "skiplist_words",
)
_DEFAULT_QUERY_LENGTH = 32


class DenseFolder(NamedTuple):
    """A linear map of the folder.

    Attributes:
        folder: Folder of its weights.
        config: Its options.
    """

    folder: Path
    config: dict[str, Any]


class TextFolder(NamedTuple):
    """A folder of a late-interaction network for texts alone.

    Attributes:
        network: Folder of the network and its tokenizer.
        dense: Linear maps in order; empty for the original ColBERT, whose map is in the network's
            own file.
        has_inline_map: Whether the network's file holds the map, as ``linear.weight``.
        prefixes: Characters before a query and before a document, by role.
        marks_prefixes: Whether the prefixes are special tokens if the vocabulary has them.
        query_length: Longest query, or None for the network's own limit.
        document_length: Longest document, or None for the network's own limit.
        expansion: Options of the extension of queries, or None.
        skipped: Words that are not compared.
        skipped_roles: Roles that the words are skipped in.
        max_seq_length: Longest text by the options, or None for the tokenizer's.
        lowercase: Whether texts are put into lower case first.
    """

    network: Path
    dense: list[DenseFolder]
    has_inline_map: bool
    prefixes: dict[str, str]
    marks_prefixes: bool
    query_length: int | None
    document_length: int | None
    expansion: dict[str, Any] | None
    skipped: list[str]
    skipped_roles: list[str]
    max_seq_length: int | None
    lowercase: bool


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON object, empty if there is no such file.

    Raises:
        CheckpointError: If it cannot be read, or is no object.
    """
    data = read_any_json(path)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a JSON object, got {type(data).__name__}")
    return cast(dict[str, Any], data)


def read_any_json(path: Path) -> object:
    """Return the content of a file, or None if there is none.

    Raises:
        CheckpointError: If it cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error


def read_text_folder(folder: Path) -> TextFolder:
    """Read what a folder says about its network.

    Raises:
        CheckpointError: If a file cannot be read, or a module or an option changes tokens in a way
            that a checkpoint cannot.
    """
    modules = read_any_json(folder / "modules.json")
    if modules is None:
        return _read_original(folder)
    if not isinstance(modules, list):
        raise CheckpointError(f"{folder / 'modules.json'}: expected a list of modules")
    return _read_modules(folder, cast(list[dict[str, Any]], modules))


def _read_original(folder: Path) -> TextFolder:
    """Read the layout of the original ColBERT."""
    found = read_json(folder / "artifact.metadata")
    expansion = {
        "strategy": "fixed",
        "length": found.get("query_maxlen") or _DEFAULT_QUERY_LENGTH,
        "attend": bool(found.get("attend_to_mask_tokens")),
    }
    return TextFolder(
        network=folder,
        dense=[],
        has_inline_map=True,
        prefixes={
            "query": f"{found.get('query_token_id') or '[unused0]'} ",
            "document": f"{found.get('doc_token_id') or '[unused1]'} ",
        },
        marks_prefixes=True,
        query_length=None,
        document_length=found.get("doc_maxlen"),
        expansion=expansion,
        skipped=list(string.punctuation) if found.get("mask_punctuation", True) else [],
        skipped_roles=["document"],
        max_seq_length=None,
        lowercase=False,
    )


def _read_modules(folder: Path, modules: list[dict[str, Any]]) -> TextFolder:
    """Read the layouts of sentence-transformers and PyLate."""
    library = read_json(folder / "config_sentence_transformers.json")
    places = [
        (str(each.get("type")).rpartition(".")[2], folder / str(each.get("path") or ""))
        for each in modules
    ]
    names = [name for name, _ in places]
    _check_modules(folder, names, is_pylate=library.get("model_type") == "ColBERT")
    options = _options(places[0][1], library)
    mask = next((read_json(path / "config.json") for name, path in places if name == _MASK), {})
    skipped = mask.get("skiplist_words") or []
    if _MASK not in names:
        own = library.get("skiplist_words")
        is_default = library.get("model_type") == "ColBERT" and own is None
        skipped = list(string.punctuation) if is_default else own or []
    if mask.get("keep_only_token_ids"):
        raise CheckpointError(f"{folder}: keep_only_token_ids is for photos, and it has none")
    if options.get("query_expansion") and _MASK not in names and _NORMALIZE in names:
        raise CheckpointError(f"{folder}: query_expansion needs a module {_MASK}, it has none")
    prefixes = _prefixes(library)
    return TextFolder(
        network=places[0][1],
        dense=[_dense(path) for name, path in places if name == _DENSE],
        has_inline_map=False,
        prefixes=prefixes,
        marks_prefixes="query_prefix" in library or "document_prefix" in library,
        query_length=options.get("query_length"),
        document_length=options.get("document_length"),
        expansion=options.get("query_expansion"),
        skipped=list(skipped),
        skipped_roles=_listed(mask.get("skiplist_tasks") or "document"),
        max_seq_length=options.get("max_seq_length"),
        lowercase=bool(options.get("do_lower_case")),
    )


def _check_modules(folder: Path, names: list[str], *, is_pylate: bool) -> None:
    known = (_TRANSFORMER, _DENSE, _MASK, _NORMALIZE)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise CheckpointError(
            f"{folder}: expected no modules but {', '.join(known)}, got {unknown}"
        )
    if not names or names[0] != _TRANSFORMER or names.count(_TRANSFORMER) > 1:
        raise CheckpointError(f"{folder}: expected one {_TRANSFORMER}, the first of its modules")
    if _NORMALIZE not in names and not is_pylate:
        raise CheckpointError(
            f"{folder}: expected a module {_NORMALIZE}: only cosines of tokens can be compared"
        )
    if _NORMALIZE in names and _DENSE in names[names.index(_NORMALIZE) :]:
        raise CheckpointError(f"{folder}: expected no {_DENSE} after {_NORMALIZE}")


def _prefixes(library: dict[str, Any]) -> dict[str, str]:
    """Return the characters before a text by role: PyLate's prefix, then the library's prompt."""
    prompts = cast(dict[str, str | None], library.get("prompts") or {})
    found: dict[str, str] = {}
    for role in ("query", "document"):
        prefix = str(library.get(f"{role}_prefix") or "")
        found[role] = prefix + (prompts.get(role) or "").removeprefix(prefix)
    return found


def _options(folder: Path, library: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the network's module; those of the whole model complete them.

    Raises:
        CheckpointError: If one of them changes tokens in a way that a checkpoint cannot.
    """
    path = folder / _OPTIONS_FILE
    options = read_json(path)
    for name, values in _HARMLESS.items():
        if options.get(name, values[0]) not in values:
            raise CheckpointError(f"{path}: {name} is {options[name]!r}, expected {values[0]!r}")
    for name in ("model", "tokenizer", "processor", "config", "processing"):
        for key in (f"{name}_args", f"{name}_kwargs"):
            given = cast(dict[str, Any], options.get(key) or {})
            if name in ("tokenizer", "processor") and "model_max_length" in given:
                options["max_seq_length"] = given["model_max_length"]
            odd = [each for each in given if each not in (*_OF_LOADING, "model_max_length")]
            if odd and any(given[each] for each in odd):
                raise CheckpointError(f"{path}: {key} has {odd[0]}, which a checkpoint cannot have")
    modalities = cast(dict[str, dict[str, Any]], options.get("modality_config") or {})
    for modality, how in modalities.items():
        if modality != "text" or how.get("method_output_name") != "last_hidden_state":
            raise CheckpointError(
                f"{path}: expected texts alone, as last_hidden_state, got {modality!r} as "
                f"{how.get('method_output_name')!r}"
            )
    return {**_whole_model_options(library), **options}


def _whole_model_options(library: dict[str, Any]) -> dict[str, Any]:
    """Return the options of PyLate, which are those of the whole model, in the library's form."""
    if not any(name in library for name in _PYLATE):
        return {}
    options = {
        name: library[name]
        for name in ("query_length", "document_length")
        if library.get(name) is not None
    }
    if "query_expansion" in library:
        return options | {"query_expansion": library["query_expansion"]}
    if library.get("do_query_expansion") is False:
        return options | {"query_expansion": None}
    attend = library.get("attend_to_expansion_tokens", library.get("attend_to_mask_tokens"))
    length = options.pop("query_length", _DEFAULT_QUERY_LENGTH)
    expansion = {"strategy": "fixed", "attend": bool(attend), "length": length}
    return options | {"query_expansion": expansion}


def _dense(folder: Path) -> DenseFolder:
    config = read_json(folder / "config.json")
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "token_embeddings"):
            raise CheckpointError(
                f"{folder}: {key} is {config[key]!r}, expected 'token_embeddings'"
            )
    return DenseFolder(folder, config)


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
