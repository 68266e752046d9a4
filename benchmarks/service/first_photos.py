"""Measures the way from a wheel to the first hit: an empty environment, no torch, 500 photos.

    python -m benchmarks.service.first_photos WHEEL [--photos 500] [--json]

The wheel is installed with its dependencies by pip, as it is configured, into a virtual environment
of its own. Its `aladin photos` then serves a folder of drawn photos of mixed kinds, HEIC among
them, with a model of the layout, the form and the shape of the default one, whose weights are
random: its hits mean nothing, its times do; then, from an empty home again, with the same network
in Immich's layout, whole, as it comes (the figures that begin with `immich_`). All is made before
the clock starts, by the packages of the environment that runs this, which needs torch, onnx and
pillow-heif.

install_*    wall-clock and processor time of pip, megabytes of the environment, largest packages
hit_*        from the start of `aladin photos` to the answer of a search that has hits
all_*        to the answer of the status that counts every photo
disk_mb      libraries and models in the home; what is linked counts as well
memory_mb    most memory of all processes together (PSS), seen ten times a second
load         mean number of processes that wanted a core, at the start and at the end
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.index.graph_models import write_as_immich, write_model
from benchmarks.lib.output import figures_parser, print_figures
from benchmarks.lib.processes import ChildProcess, processor_time_s

# Of ten photos, and their sides in pixels: a telephone's folder, with what people send each other.
KINDS = ("HEIF", "JPEG", "HEIF", "JPEG", "PNG", "HEIF", "JPEG", "WEBP", "AVIF", "TIFF")
SUFFIXES = {"HEIF": "heic", "JPEG": "jpg", "PNG": "png", "WEBP": "webp", "AVIF": "avif"}
SIDES = (1600, 1200)
_START_S, _LOOK_S, _LARGEST = 1800.0, 0.1, 8
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")


class FirstPhotos(NamedTuple):
    """Figures of `aladin photos`; see the docstring of the module."""

    hit_wall_s: float
    hit_processor_s: float
    all_wall_s: float
    all_processor_s: float
    memory_mb: float


def draw_photos(folder: Path, count: int, sides: tuple[int, int] = SIDES) -> None:
    """Draw photos of all kinds, no two of them alike."""
    import pi_heif
    import pillow_heif

    pillow_heif.register_heif_opener()
    pi_heif.register_heif_opener()  # which reads them, in this process too
    folder.mkdir()
    for number in range(count):
        random = np.random.default_rng(number)
        rough = Image.fromarray(random.integers(0, 256, (96, 128, 3), dtype=np.uint8))
        kind = KINDS[number % len(KINDS)]
        picture = rough.resize(sides, Image.Resampling.BICUBIC)
        options = {"speed": 10} if kind == "AVIF" else {}
        picture.save(folder / f"IMG_{number:04}.{SUFFIXES.get(kind, 'tif')}", kind, **options)


def install(environment: Path, wheel: Path) -> dict[str, Any]:
    """Make a virtual environment, and install a wheel into it."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    venv.create(environment, with_pip=True)
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", wheel]
    subprocess.run(pip, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (packages,) = environment.glob("lib/python*/site-packages")
    if (packages / "torch").exists():
        raise SystemExit(f"{wheel}: expected an installation without torch")
    sizes = {each.name: _megabytes(each) for each in packages.iterdir()}
    largest = sorted(sizes.items(), key=lambda named: -named[1])[:_LARGEST]
    return {
        "install_wall_s": time.monotonic() - started,
        "install_processor_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "install_mb": _megabytes(environment),
        **{f"install_mb_{name}": size for name, size in largest},
    }


def _megabytes(place: Path) -> float:
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_blocks * 512 for file in files if not file.is_symlink()) / 1e6


def follow(aladin: Path, photos: Path, model: str, home: Path) -> FirstPhotos:
    """Start `aladin photos` in an empty home; wait for its first hit, and for all photos.

    Args:
        aladin: The program.
        photos: Folder of photos, all of which can be read.
        model: Folder of the model, with its variant.
        home: Folder for libraries, converted models and the log.
    """
    count = sum(1 for _ in photos.iterdir())
    settings = {f"ALADIN_{name}_DIR": str(home / name.lower()) for name in ("LIBRARIES", "MODELS")}
    words = [aladin, "photos", photos, "--model", model, "--no-browser"]
    started = time.monotonic()
    with ChildProcess(words, home / "log", settings=settings | {"HOME": str(home)}) as process:
        seen = _Seen(process)

        def elapsed() -> tuple[float, float]:
            return time.monotonic() - started, processor_time_s(process.pids())

        try:
            process.wait_until(lambda: seen.has_hits(), _START_S, _LOOK_S)
            hit = elapsed()
            process.wait_until(lambda: seen.count() == count, _START_S, _LOOK_S)
            return FirstPhotos(*hit, *elapsed(), seen.memory / 1e6)
        finally:
            process.stop(30.0)


class _Seen:
    """What the service of a process answers, and the most memory that was seen."""

    def __init__(self, process: ChildProcess) -> None:
        self.memory = 0
        self._process = process

    def has_hits(self) -> bool:
        answer = self._ask("POST", "/v1/search/images", {"text": "two dogs on grass"})
        return bool(answer and answer["hits"])

    def count(self) -> int:
        answer = self._ask("GET", "/v1/index")
        return answer["images"]["count"] if answer else 0

    def _ask(self, method: str, path: str, fields: Any = None) -> Any:
        """Return an answer, or None while there is none."""
        self.memory = max(self.memory, self._process.memory().pss)
        address = _ADDRESS.search(self._process.output())
        if address is None:
            return None
        connection = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {address[2]}"}
        try:
            connection.request(method, path, json.dumps(fields), headers)
            answer = connection.getresponse()
            content = answer.read()
        except OSError:
            return None
        finally:
            connection.close()
        return json.loads(content) if answer.status == 200 else None


def measure(wheel: Path, count: int, work: Path) -> Iterator[tuple[str, Any]]:
    """Yield the figures by their names."""
    draw_photos(work / "photos", count)
    (work / "clip").mkdir()
    write_model(work / "clip")
    write_as_immich(work / "clip", work / "immich")
    yield "load", os.getloadavg()[0]
    yield from install(work / "venv", wheel.resolve()).items()
    aladin = work / "venv" / "bin" / "aladin"
    for prefix, model in (("", f"{work / 'clip'}:fp16"), ("immich_", str(work / "immich"))):
        home = work / f"{prefix}home"
        home.mkdir()
        figures = follow(aladin, work / "photos", model, home)
        yield from ((prefix + name, value) for name, value in figures._asdict().items())
        yield f"{prefix}disk_mb", _megabytes(home)
    yield "load_at_the_end", os.getloadavg()[0]


def main() -> None:
    """Parse the command line, measure, and print the figures."""
    parser = figures_parser(__doc__)
    parser.add_argument("wheel", metavar="WHEEL", type=Path, help="wheel of `make wheel`")
    parser.add_argument("--photos", type=int, default=500, help="photos; default: %(default)s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = dict(measure(options.wheel, options.photos, Path(folder)))
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
