"""Measures which photos are stacked, by made sets among other photos, and what it costs.

    python -m benchmarks.search.stacks PHOTOS [--changes 100] [--pages 2000]
        [--items 10000 100000] [--json]

Of 40 photos of the folder PHOTOS, four for each kind, a set is made: pairs of two formats, a RAW
beside its JPEG (by name, with the same picture), edited copies, bursts by name and by time, exact
copies in another folder under another name, smaller and compressed, brighter and darker, and
cropped ones. They are sorted into stacks together with all photos of the folder.

split      sets that are not one stack
wrong      stacks in which photos of different sets, or of the folder, are together
identical  stacks of such photos whose fingerprints are equal
nearest    bits between the nearest different photos of the folder
nearest_pages  the same of drawn pages of printed text, the hardest to tell apart
alike      share of pairs of different photos that look alike enough for a burst
COPY       share of so many photos whose copy, changed in this way, is near
seconds_N  processor time to read N made-up photos and sort them, and `added_N` one more
ratio_N    processor time of searches for ten stacks among N photos in pairs, by that of searches
           for ten photos, asked in turn
print_ms   processor time of the fingerprint of a photo of 12 megapixels
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

from aladin_index.items.stacks import StackIndex
from aladin_index.items.store import ItemStore
from aladin_index.items.tables import StoredItem, write_items
from aladin_index.open import open_backend
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.photos.fingerprint import (
    ALIKE_BITS,
    COPY_BITS,
    COPY_LOW_BITS,
    different_bits,
    fingerprint,
    unpack,
)
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.search.names import Asker, write_index

_SETS_OF_KIND, _BURST = 4, 6
_TEXT, _ASKED = "a dog runs on the beach with a red ball", 60
_PAIRS_AT_A_TIME = 500


def saved(picture: Image.Image, quality: int = 85, format: str = "JPEG") -> Image.Image:
    """Return a picture as a file of a format shows it."""
    file = io.BytesIO()
    picture.save(file, format, quality=quality)
    return Image.open(io.BytesIO(file.getvalue())).convert("RGB")


def cropped(picture: Image.Image, *edges: float) -> Image.Image:
    """Cut shares of the width and height off the left, top, right and bottom edge."""
    left, top, right, bottom = edges
    width, height = picture.size
    x, y = round(width * left), round(height * top)
    return picture.crop((x, y, width - round(width * right), height - round(height * bottom)))


def scaled(picture: Image.Image, factor: float) -> Image.Image:
    """Return a picture at another size."""
    size = round(picture.width * factor), round(picture.height * factor)
    return picture.resize(size, Image.Resampling.LANCZOS)


def copies_of(picture: Image.Image) -> Iterator[tuple[str, Image.Image]]:
    """Yield near-copies, by what was changed."""
    yield "compressed", saved(picture, 30)
    yield "half", saved(scaled(picture, 0.5), 60)
    yield "quarter", saved(scaled(picture, 0.25))
    yield "brighter", saved(ImageEnhance.Brightness(picture).enhance(1.2))
    yield "darker", saved(ImageEnhance.Brightness(picture).enhance(0.8))
    yield "contrast", saved(ImageEnhance.Contrast(picture).enhance(1.2))
    yield "cropped_1", saved(cropped(picture, *[0.01] * 4))
    yield "cropped_2", saved(cropped(picture, *[0.02] * 4))
    yield "one_edge_2", saved(cropped(picture, 0.02, 0, 0, 0))


class MadeUp(NamedTuple):
    """Photos that are read by their rows."""

    items: list[StoredItem]

    def by_rows(self, rows: Sequence[int]) -> list[StoredItem]:
        """Return the photos at some rows."""
        return [self.items[row]._replace(row=row) for row in rows]


def photo(uri: str, shown: str | None, **metadata: Any) -> StoredItem:
    """Return a photo of an index, with its fingerprint."""
    item = StoredItem(0, uri, uri, uri, None, None, None, None, metadata)
    return item._replace(fingerprint=shown)


def _sets(pictures: Sequence[Image.Image]) -> Iterator[list[StoredItem]]:
    """Yield the photos of each set, beside the original `base/NUMBER.jpg` of the first kinds."""
    for number, picture in enumerate(pictures):
        original = fingerprint(picture)
        folder, name = f"set {number}", f"IMG_{number:04d}"
        made: list[StoredItem] = []
        copies = dict(copies_of(picture))
        match number // _SETS_OF_KIND:
            case 0:  # HEIC, which AVIF stands for, and JPEG
                made += [photo(f"{folder}/{name}.HEIC", fingerprint(saved(picture, 60, "AVIF")))]
            case 1:
                made += [photo(f"{folder}/{name}.CR2", original)]
            case 2:
                part = fingerprint(cropped(picture, 0.2, 0.2, 0.1, 0.3))
                made += [photo(f"{folder}/IMG_E{number:04d}.JPG", part)]
            case 3:
                part = fingerprint(cropped(picture, 0, 0.4, 0.1, 0))
                made += [photo(f"{folder}/{name}-edited.jpg", part)]
            case 4:
                of_burst = f"{folder}/IMG_20220714_1010{number:02d}_BURST"
                for place in range(_BURST):
                    moved = cropped(picture, 0.02 * place, 0, 0.1 - 0.02 * place, 0.1)
                    made += [photo(f"{of_burst}{place:03d}.jpg", fingerprint(moved))]
                yield made
                continue
            case 5:
                for place in range(_BURST):
                    moved = cropped(picture, 0.008 * place, 0.004 * place, 0, 0)
                    taken = {"taken_at": f"2022-07-14T10:10:{10 + 2 * place:02d}", "camera": "X"}
                    made += [
                        photo(
                            f"{folder}/{place}.jpg",
                            fingerprint(saved(moved)),
                            date_source="exif",
                            **taken,
                        )
                    ]
                yield made
                continue
            case 6:
                made += [photo(f"backup {number}/other name.jpg", original)]
            case 7:
                some = ("compressed", "half", "quarter")
                made += [
                    photo(f"sent {number}/{each}.jpg", fingerprint(copies[each])) for each in some
                ]
            case 8:
                some = ("brighter", "darker", "contrast")
                made += [
                    photo(f"light {number}/{each}.jpg", fingerprint(copies[each])) for each in some
                ]
            case _:
                some = ("cropped_1", "one_edge_2")
                made += [
                    photo(f"cut {number}/{each}.jpg", fingerprint(copies[each])) for each in some
                ]
        yield [photo(f"{folder}/{name}.JPG", original), *made]


def set_figures(folder: Path, changed: int, pages: int) -> dict[str, Any]:
    """Sort made sets and all photos of a folder into stacks, and compare all photos."""
    files = sorted(path for path in folder.iterdir() if path.suffix == ".jpg")
    prints = {path.name: fingerprint(Image.open(path)) for path in files}
    chosen = files[:: len(files) // (10 * _SETS_OF_KIND)][: 10 * _SETS_OF_KIND]
    sets = list(_sets([Image.open(path).convert("RGB") for path in chosen]))
    # The originals of the sets stay away: each set is one stack without them.
    kept = [path.name for path in files if path not in chosen]
    items = [each for of_set in sets for each in of_set]
    items += [photo(f"all/{name}", prints[name]) for name in kept]
    stacks = StackIndex().read(MadeUp(items), len(items), len(items), None)
    roots = stacks.roots.tolist()
    row, split = 0, list[str]()
    owner: dict[int, str] = {}
    for number, of_set in enumerate(sets):
        rows = range(row, row + len(of_set))
        row += len(of_set)
        owner.update(dict.fromkeys(rows, f"set {number}"))
        if len({roots[each] for each in rows}) > 1:
            split.append(f"set {number}: {[each.uri for each in of_set]}")
    together: dict[int, list[int]] = {}
    for each, root in enumerate(roots):
        together.setdefault(root, []).append(each)
    wrong, identical = list[str](), 0
    for rows in together.values():
        if len({owner.get(each, str(items[each].uri)) for each in rows}) == 1:
            continue
        if len({items[each].fingerprint for each in rows}) == 1:
            identical += 1
        else:
            wrong.append(f"{[items[each].uri for each in rows]}")
    words = unpack([each for each in prints.values() if each is not None])
    of_pages = unpack([fingerprint(page) or "" for page in _pages_of_text(pages)])
    nearest, alike = _pairs(words)
    copies = _copies(files[:: max(1, len(files) // changed)][:changed]) if changed else {}
    return {
        "photos": len(items),
        "split": len(split),
        "wrong": len(wrong),
        "identical": identical,
        "nearest": " ".join(map(str, nearest)),
        "nearest_pages": " ".join(map(str, _pairs(of_pages)[0])),
        "alike": alike,
        "which": split + wrong,
        **copies,
    }


def _pages_of_text(count: int) -> Iterator[Image.Image]:
    """Draw pages of random words that all have the same margins and lines."""
    random = np.random.default_rng(0)
    letters, font = np.array(list("etaoinshrdlucmfwypvbgkjqxz")), ImageFont.load_default(20)
    for _ in range(count):
        page = Image.new("L", (750, 1000), "white")
        pen = ImageDraw.Draw(page)
        for y in range(40, 950, 30):
            sizes = random.integers(2, 10, size=12)
            words = ["".join(random.choice(letters, size)) for size in sizes]
            pen.text((40, y), " ".join(words)[:62], fill="black", font=font)
        yield page


def _pairs(words: NDArray[np.uint64]) -> tuple[list[int], float]:
    """Return the bits between the nearest pairs, and the share of pairs that look alike."""
    counts = np.zeros(64 * words.shape[1] + 1, dtype=np.int64)
    for start in range(0, len(words), _PAIRS_AT_A_TIME):
        some = words[start : start + _PAIRS_AT_A_TIME]
        bits = different_bits(some[:, None], words[None, start:])
        later = np.arange(bits.shape[1]) > np.arange(len(some))[:, None]
        counts += np.bincount(bits[later], minlength=len(counts))
    nearest = np.repeat(np.arange(len(counts)), counts)[:5].tolist()
    return nearest, float(counts[: ALIKE_BITS + 1].sum() / counts.sum())


def _copies(files: Sequence[Path]) -> Mapping[str, float]:
    near: dict[str, list[bool]] = {}
    for path in files:
        picture = Image.open(path).convert("RGB")
        own = fingerprint(picture)
        for name, copy in copies_of(picture):
            other = fingerprint(copy)
            if own is not None and other is not None:
                pair = unpack([own, other])
                low = int(np.bitwise_count(pair[0, 0] ^ pair[1, 0]))
                bits = int(different_bits(pair[:1], pair[1])[0])
                near.setdefault(name, []).append(bits <= COPY_BITS and low <= COPY_LOW_BITS)
    return {name: float(np.mean(each)) for name, each in near.items()}


def cost_figures(folder: Path, counts: Sequence[int]) -> dict[str, float]:
    """Time the sorting of made-up photos, each of the words of four photos of the folder."""
    random = np.random.default_rng(0)
    files = sorted(folder.glob("*.jpg"))
    known = [fingerprint(Image.open(path)) for path in files[:: max(1, len(files) // 2000)]]
    words = unpack([each for each in known if each is not None])
    figures: dict[str, float] = {}
    for count in counts:
        mixed = np.stack(
            [words[random.integers(len(words), size=count + 1), n] for n in range(4)], 1
        )
        mixed ^= np.uint64(1) << random.integers(64, size=mixed.shape).astype(np.uint64)
        items = [
            photo(f"{n % 99}/{n}.jpg", each.tobytes().hex())._replace(row=n)
            for n, each in enumerate(mixed)
        ]
        with tempfile.TemporaryDirectory() as root:
            write_items(Path(root) / "items", items)
            store, stacks = ItemStore(Path(root) / "items"), StackIndex()
            began_s = time.process_time()
            stacks.read(store, count, count, None)
            built_s = time.process_time()
            stacks.read(store, count, count + 1, None)
            figures[f"seconds_{count}"] = built_s - began_s
            figures[f"added_{count}"] = time.process_time() - built_s
            store.close()
        figures[f"ratio_{count}"] = _search_ratio(count)
    large = Image.fromarray(random.integers(0, 256, (3000, 4000, 3), dtype=np.uint8))
    began_s = time.process_time()
    for _ in range(5):
        fingerprint(large)
    figures["print_ms"] = 200 * (time.process_time() - began_s)
    return figures


def _search_ratio(count: int) -> float:
    """Time searches of photos whose names make pairs of them, with stacks and without."""
    names = [f"{n % 198 // 2}/IMG_{n // 2:06d}.{('jpg', 'png')[n % 2]}" for n in range(count)]
    spent_s = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        write_index(Path(folder) / "index", names)
        with closing(open_backend(Path(folder) / "index")) as index:
            asker = Asker(TwoStageSearcher(index))
            asker.ask(_TEXT, stack=True)
            for number in range(_ASKED):
                for stack in (False, True):
                    began_s = time.process_time()
                    asker.ask(f"{_TEXT} {number}", 0.0, stack=stack)
                    spent_s[stack] += time.process_time() - began_s
    return spent_s[1] / spent_s[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurements, and print figures or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument("photos", type=Path, metavar="PHOTOS", help="a folder of .jpg files")
    parser.add_argument("--changes", type=int, default=100, metavar="N", help="photos for COPY")
    parser.add_argument("--pages", type=int, default=2000, metavar="N", help="of printed text")
    parser.add_argument("--items", type=int, nargs="*", default=[10_000, 100_000], metavar="N")
    options = parser.parse_args(arguments)
    figures = set_figures(options.photos, options.changes, options.pages)
    figures |= cost_figures(options.photos, options.items)
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()
