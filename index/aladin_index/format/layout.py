"""Layout of an index folder.

INDEX/
  CURRENT               names the live generation; replaced atomically
  .publishing           names the generation that is about to become live; gone once it is
  model/                the checkpoint that the index was built with
  generations/000001/   a published generation; never changed again
  .build/               the work of a build that is not done; gone afterwards
  .catalogue.partial/   the items that a build was given; each build writes it anew
  .generation.partial/  a generation that is being written; of no use once its writer is gone
  changes/000001/       what was added to a generation and removed from it since it was built
  photos/               photos that were uploaded, named by the sha256 of their bytes
  evaluations/          what was measured of each generation, for people to see
  .lock                 held by the process that builds
  .changes.lock         held by the process that adds, removes or makes a generation live

An index that an engine keeps has ``engine.json`` in the place of generations and changes, see
`aladin_index.format.engine_location`.
"""

from __future__ import annotations

import re
from pathlib import Path

from aladin_index.format.engine_location import ENGINE_FILE
from aladin_network.errors import IndexCorruptError, IndexNotReadyError, InputError
from aladin_network.files import atomic_file

CURRENT, MODEL, GENERATIONS, BUILD, LOCK = "CURRENT", "model", "generations", ".build", ".lock"
PUBLISHING = ".publishing"
NEW_CATALOGUE, NEW_GENERATION = ".catalogue.partial", ".generation.partial"
CHANGES, PHOTOS, CHANGES_LOCK = "changes", "photos", ".changes.lock"
EVALUATIONS = "evaluations"
# Files of the images or the texts of a generation; those of the tokens: `tokens.store`.
ANN, EMBEDDINGS, ITEMS = "ann.faiss", "embeddings.npy", "items.sqlite"
SKIPPED = "left_out.json"


def generation_folder(root: Path, generation: int) -> Path:
    """Return the folder of a published generation."""
    return root / GENERATIONS / f"{generation:06d}"


def published_generations(root: Path) -> list[int]:
    """List the generations of an index, oldest first."""
    folder = root / GENERATIONS
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir() if entry.is_dir())
    return sorted(int(name) for name in names if re.fullmatch(r"\d{6,}", name))


def check_kept_in_files(root: Path) -> None:
    """Reject operations of indexes of files if a vector database stores the index.

    Raises:
        InputError: an engine keeps it.
    """
    if (root / ENGINE_FILE).exists():
        raise InputError(
            f"{root}: expected an index of files, got one that an engine keeps ({ENGINE_FILE}); "
            "do this with the index that it was pushed from, and push that again"
        )


def live_generation(root: Path) -> int:
    """Return the number of the live generation of an index of files.

    Raises:
        InputError: an engine keeps the index.
        IndexNotReadyError: If there is no index, or nothing was published yet.
        IndexCorruptError: CURRENT names no generation of this index.
    """
    path = root / CURRENT
    try:
        name = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        check_kept_in_files(root)
        reason = f"no index here, it has no {CURRENT}"
        if (root / BUILD).is_dir():
            reason += "; a build was cut short here, run it again with --resume"
        raise IndexNotReadyError(f"{root}: {reason}") from None
    except (OSError, ValueError) as error:
        raise IndexCorruptError(path, f"cannot be read ({error})") from error
    if not re.fullmatch(r"\d{6,}\n", name):
        raise IndexCorruptError(path, f"expected the number of a generation, got {name!r}")
    generation = int(name)
    if not generation_folder(root, generation).is_dir():
        raise IndexCorruptError(path, f"names generation {generation}, which is not there")
    return generation


def set_live_generation(root: Path, generation: int) -> None:
    """Make a published generation the live one, atomically."""
    with atomic_file(root / CURRENT) as partial:
        partial.write_text(f"{generation:06d}\n", encoding="utf-8")
