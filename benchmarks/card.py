"""Measures searches on a graphics card, and writes the figures after every step.

    python -m benchmarks.card --out FILE.json [--seconds 570] [--only STEP ...] [--quick]

environment     card, driver, torch, FAISS and its CUDA libraries, processor
tests           the tests marked `gpu`
photos          synthetic embeddings and their exact neighbours in float32, for the next two steps
faiss           FAISS alone: every vector in half precision, and inverted lists of 8 bits
torch           torch alone: every vector in half and in single precision
exhaustive      all photos scored by both stages, beside a bare product of their tokens
ten_million     both stages with ten times the photos
stages_N        both stages of the product with N photos, on the processor and on the card
encoding        photos into an index, beside decoding and the network alone
http_NAME       the service under load, with text encoders of two sizes

See `benchmarks.search.gpu`, `benchmarks.search.card_stages`, `benchmarks.index.card_encoding` and
`benchmarks.service.card_http` for the figures. Each step runs in a process of its own: one that
fails, crashes or overruns its share of the time is recorded with the reason, and the next one runs.
Without a card, all that needs one is recorded as skipped; `--quick` measures a few photos then, on
the processor. `--only` divides the steps among several runs, each with a file of its own.

On a machine without a connection, bring: this tree with the compiled kernel
(index/aladin_index/kernel/_maxsim.so), with its folders aladin, index, training and service in
PYTHONPATH, the packages that the tests and the service import, and FAISS for cards (`pip download
--no-deps faiss-gpu`), which needs CUDA 12 libraries. Where there is only CUDA 13, as PyTorch brings
it, unpack the wheel, delete its faiss/_gpu_build.py, which loads CUDA 12 by name, and put a folder
into LD_LIBRARY_PATH with libcudart.so.12 (package nvidia-cuda-runtime-cu12), an empty library named
libcublasLt.so.12, and a library named libcublas.so.12 that forwards to libcublas.so.13 the
functions that `nm -D --undefined-only libfaiss.so | grep cublas` lists.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from benchmarks.lib.steps import Report, Setup, SkippedError, Step, run_steps

_ROOT = Path(__file__).resolve().parents[1]
_SIZES = (10_000, 100_000, 1_000_000)
_QUICK_SIZE = 1000
_BERT = Step("http_bert-base", "benchmarks.service.card_http:bert_base", 70, 100_000)
_STAGES_SHARE = {10_000: 30.0, 100_000: 60.0, 1_000_000: 170.0, _QUICK_SIZE: 30.0}
_STAGES = "benchmarks.search.card_stages"
# What is told of a test that fails, and of pytest's output.
_MOST_CHARS = 2000


def main(arguments: list[str] | None = None) -> int:
    """Run the steps; the exit status is 1 if one failed or was cut."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the figures")
    parser.add_argument("--seconds", type=float, default=570, help="time for all steps")
    parser.add_argument("--quick", action="store_true", help="a few photos, also without a card")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="these; `faiss` needs `photos`")
    options = parser.parse_args(arguments)
    planned = steps(is_quick=options.quick)
    wanted = set(options.only or [step.name for step in planned])
    if unknown := wanted - {step.name for step in planned}:
        known = ", ".join(step.name for step in planned)
        parser.error(f"--only: expected some of {known}, got {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        content = run_steps(
            [step for step in planned if step.name in wanted],
            options.out,
            Path(folder),
            options.seconds,
            is_quick=options.quick,
        )
    return int(any(step["status"] in ("failed", "cut") for step in content["steps"].values()))


def steps(*, is_quick: bool) -> list[Step]:
    """List the steps in their order."""
    sizes = (_QUICK_SIZE,) if is_quick else _SIZES
    return [
        Step("environment", "benchmarks.card:environment", 10),
        Step("tests", "benchmarks.card:marked_tests", 60),
        Step("photos", "benchmarks.search.gpu:draw", 40, sizes[-1]),
        Step("faiss", "benchmarks.search.gpu:faiss_alone", 80, sizes[-1]),
        Step("torch", "benchmarks.search.gpu:torch_alone", 30, sizes[-1]),
        Step("exhaustive", f"{_STAGES}:exhaustive", 60, sizes[-1]),
        Step("ten_million", f"{_STAGES}:ten_million", 90, 10 * sizes[-1]),
        *(
            Step(f"stages_{items}", f"{_STAGES}:two_stages", _STAGES_SHARE[items], items)
            for items in sizes
        ),
        Step("encoding", "benchmarks.index.card_encoding:encoding", 90, 24 if is_quick else 6000),
        Step("http_minilm", "benchmarks.service.card_http:minilm", 60, 100_000),
        *([] if is_quick else [_BERT]),
    ]


def environment(setup: Setup, report: Report) -> None:
    """Report the card, the driver and the libraries."""
    del setup
    report("python", platform.python_version())
    report("processor", {"machine": platform.machine(), "threads": torch.get_num_threads()})
    report("torch", {"version": torch.__version__, "cuda": torch.version.cuda})
    report("card", _card())
    report("faiss", _faiss())
    report("cuda_libraries", _cuda_libraries())
    from aladin_index.kernel import load_kernel

    kernel = load_kernel()
    report("kernel", "numpy" if kernel is None else kernel.paths[0])


def _card() -> dict[str, Any] | None:
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        driver = done.stdout.strip() or done.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        driver = str(error)
    return {
        "name": properties.name,
        "driver": driver,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "total_bytes": total,
        "free_bytes": free,
    }


def _faiss() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("faiss-cpu", "faiss-gpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    try:  # torch is imported already, whose CUDA libraries have to come first
        from aladin_index.ann import faiss
    except Exception as error:  # a library that is missing must not hide the rest
        return found | {"error": f"{type(error).__name__}: {error}"[:_MOST_CHARS]}
    has_cards = hasattr(faiss, "StandardGpuResources")
    cards = faiss.get_num_gpus() if has_cards else 0
    return found | {"version": faiss.__version__, "supports_cards": has_cards, "cards": cards}


def _cuda_libraries() -> list[str]:
    """Return the names of the mapped libraries of CUDA and FAISS (Linux)."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    files = {Path(line.split()[-1]).name for line in maps.read_text("utf-8").splitlines()}
    return sorted(name for name in files if name.startswith(("libcu", "libfaiss", "libnvrtc")))


def marked_tests(setup: Setup, report: Report) -> None:
    """Run the tests marked `gpu`; without a card they are only collected."""
    files = [
        str(file)
        for file in sorted((_ROOT / "tests").rglob("test_*.py"))
        if "pytest.mark.gpu" in file.read_text(encoding="utf-8")
    ]
    has_card = torch.cuda.is_available()
    figures = run_tests(files, setup.seconds, only_collect=not has_card)
    report("pytest", figures)
    if figures["exit_status"] != 0:
        raise RuntimeError(f"pytest ended with {figures['exit_status']}")
    if not has_card:
        raise SkippedError("torch finds no CUDA device; the tests were only collected")


def run_tests(files: list[str], seconds: float, *, only_collect: bool = False) -> dict[str, Any]:
    """Run the tests of some files that are marked `gpu`, in a process of their own.

    Args:
        files: Files of tests.
        seconds: Time after which pytest is ended.
        only_collect: Whether to import the files without running a test.

    Returns:
        pytest's exit status, the end of its output, and by test "passed", or what it failed or was
        skipped with.
    """
    # Without the options and the strict warnings of pyproject.toml: another machine has other
    # versions of the packages, and what is asked for is whether the card computes the right things.
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu"]
    command += ["-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:schemathesis"]
    command += ["-o", "addopts=", "-o", "filterwarnings=default", "--import-mode=importlib"]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command += ["--collect-only"] if only_collect else [f"--junitxml={results}"]
        path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        try:
            done = subprocess.run(
                [*command, *files],
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=0.95 * seconds,
                check=False,
            )
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            status, output = -1, error.stdout or b""
        tests = _outcomes(results) if results.exists() else {}
    text = output.decode("utf-8", "replace")
    return {"exit_status": status, "tests": tests, "output": text[-_MOST_CHARS:]}


def _outcomes(results: Path) -> dict[str, str]:
    # Written by pytest a moment ago.
    cases = ElementTree.parse(results).iter("testcase")
    outcomes: dict[str, str] = {}
    for case in cases:
        bad = [each for each in case if each.tag in ("failure", "error", "skipped")]
        told = [f"{each.tag}: {each.get('message', '')}"[:_MOST_CHARS] for each in bad]
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = "; ".join(told) or "passed"
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
