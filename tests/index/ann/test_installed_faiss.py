"""Which installations of FAISS are refused: made by its distributions in turns, as pip does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

# Those of the real ones that tell them apart; both print what is imported in which order.
INIT = "import faiss.swigfaiss\nprint('faiss')\n"
FILES = {
    "faiss-cpu": {"__init__.py": INIT, "swigfaiss.py": "", "libfaiss.so": "processors"},
    "faiss-gpu": {
        "__init__.py": INIT,
        "_gpu_build.py": "IS_GPU_BUILD = True\n",
        "swigfaiss.py": "StandardGpuResources = None\n",
        "libfaiss.so": "processors and cards",
    },
}
ROOT = Path(__file__).parents[3]
REMOVING = "pip uninstall -y faiss-cpu faiss-gpu && pip install"


class Site:
    """A folder of packages, and what pip does in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "torch.py").write_text("print('torch')\n", encoding="utf-8")

    def record(self, name: str) -> Path:
        return self.folder / f"{name.replace('-', '_')}-1.15.1.dist-info"

    def install(self, name: str) -> None:
        (self.folder / "faiss").mkdir(exist_ok=True)
        rows: list[str] = []
        for file, text in FILES[name].items():
            (self.folder / "faiss" / file).write_text(text, encoding="utf-8")
            rows.append(f"faiss/{file},sha256=unread,{len(text)}\n")
        self.record(name).mkdir()
        metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.15.1\n"
        (self.record(name) / "METADATA").write_text(metadata, encoding="utf-8")
        (self.record(name) / "RECORD").write_text("".join(rows), encoding="utf-8")

    def uninstall(self, name: str) -> None:
        for file in FILES[name]:
            (self.folder / "faiss" / file).unlink(missing_ok=True)
        self.forget(name)

    def forget(self, name: str) -> None:
        shutil.rmtree(self.record(name))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=120,
        )


def site_after(folder: Path, steps: str) -> Site:
    """A folder after installing (+), uninstalling (-) and forgetting (?) distributions."""
    site = Site(folder)
    do = {"+": site.install, "-": site.uninstall, "?": site.forget}
    for step in steps.split():
        do[step[0]](f"faiss-{step[1:]}")
    return site


@pytest.mark.parametrize(
    ("steps", "imported"),
    [
        ("+cpu", ["faiss"]),
        ("+gpu", ["torch", "faiss"]),
        # The line that the errors give.
        ("+cpu +gpu -cpu -gpu +gpu", ["torch", "faiss"]),
        ("+gpu +cpu -cpu -gpu +cpu", ["faiss"]),
    ],
)
def test_one_whole_distribution_is_imported_after_torch_if_it_is_for_gpus(
    tmp_path: Path, steps: str, imported: list[str]
) -> None:
    done = site_after(tmp_path, steps).run("-c", "import aladin_index.ann")
    assert (done.returncode, done.stdout.split()) == (0, imported), done.stderr


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("+cpu +gpu", "faiss-cpu and faiss-gpu are both installed"),
        ("+gpu +cpu", "faiss-cpu and faiss-gpu are both installed"),
        ("+cpu +gpu -cpu", "faiss-gpu is installed, but its module faiss has lost files"),
        ("+gpu +cpu -gpu", "faiss-cpu is installed, but its module faiss has lost files"),
        ("+gpu +cpu ?cpu", "faiss-gpu is installed, but its module faiss has lost files, or has"),
        ("+cpu +gpu ?gpu", "faiss-cpu is installed, but its module faiss has lost files, or has"),
    ],
)
def test_what_both_leave_behind_is_refused_before_anything_is_loaded(
    tmp_path: Path, steps: str, expected: str
) -> None:
    done = site_after(tmp_path, steps).run("-c", "import aladin_index.ann")
    *_, error = done.stderr.splitlines()
    assert error.startswith(f"aladin_network.errors.ConfigError: {expected}")
    kept = "faiss-gpu" if "both" in expected else expected.split()[0]
    assert f"`{REMOVING} {kept}==1.15.1`" in error
    assert done.stdout == ""


def test_stripped_libraries_a_missing_mark_and_files_without_sizes_are_taken(
    tmp_path: Path,
) -> None:
    site = site_after(tmp_path, "+gpu")
    (tmp_path / "faiss/libfaiss.so").write_text("", encoding="utf-8")
    (tmp_path / "faiss/_gpu_build.py").unlink()  # where other CUDA libraries are to be used
    assert site.run("-c", "import aladin_index.ann").stdout.split() == ["torch", "faiss"]
    record = site.record("faiss-gpu") / "RECORD"
    record.write_text("".join(f"faiss/{file},,\n" for file in FILES["faiss-gpu"]), encoding="utf-8")
    assert site.run("-c", "import aladin_index.ann").stdout.split() == ["torch", "faiss"]
    record.unlink()
    assert site.run("-c", "import aladin_index.ann").stdout.split() == ["torch", "faiss"]


def test_the_line_of_the_readme_installs_the_version_that_is_required() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (required,) = (each for each in project["dependencies"] if each.startswith("faiss"))
    for_gpus = required.replace("faiss-cpu", "faiss-gpu")
    assert f"pip install '.[train]' && {REMOVING} {for_gpus}\n" in readme
    of_image = (ROOT / "docker" / "lock-gpu.in").read_text(encoding="utf-8").splitlines()
    assert of_image[-1] == for_gpus


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_no_service_starts_with_two_distributions(tmp_path: Path, more: list[str]) -> None:
    serve = ["-m", "aladin_service", "serve", str(tmp_path), "--wait", "--port", "0"]
    done = site_after(tmp_path, "+cpu +gpu").run(*serve, *more)
    (line,) = done.stderr.splitlines()
    assert "faiss-cpu and faiss-gpu are both installed" in line
    assert (done.returncode, done.stdout) == (2, "")
