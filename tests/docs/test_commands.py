"""Every command of the documents runs as it is pasted, or is named here with the reason why not.

Bash itself reads the lines, so that quotes, braces, variables and ``~`` mean what they mean to a
reader; ``aladin`` and the other programs stand for functions that record their arguments. A command
of ``aladin`` is then run in this process, in a folder of its own with small data under the names
that the documents use. Those of `NOT_RUN` are parsed as a whole.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer.main
from PIL import Image
from typer.testing import CliRunner

from aladin_service.cli import app
from tests.conftest import CAPTIONS, tiny_model
from tests.docs.test_documents import DOCUMENTS, ROOT, read
from tests.dual_encoders import save_dual_encoder

RESULTS = {"benchmarks/RESULTS.md", "docs/SCALE.md", "docs/INTEGRATIONS.md"}
RUN_FROM = [document for document in DOCUMENTS if document not in RESULTS]

# What a document's word stands for in the folder of `world`; other words are there by their names.
STANDS_FOR = {
    "FOLDER...": "FOLDER",
    "CHECKPOINT": "RUN/checkpoint",
    "runs/flickr8k-fast/checkpoint": "RUN/checkpoint",
    "models/clip": "RUN/checkpoint",
    "runs/flickr8k-fast-index": "INDEX",
    "aladin-demo/index": "INDEX",
    "captions.jsonl": "DATA.jsonl",
    "data/flickr8k/captions.jsonl": "DATA.jsonl",
    "DATA": "DATA.jsonl",
    "PHOTOS": "FOLDER",
    "photos/": "FOLDER",
    "runs/clip": "RUN",
    "training/recipes/finetune-clip.toml": "finetune-clip",
}

# Beginnings of commands that are parsed and not run, after `STANDS_FOR`.
NOT_RUN = {
    "aladin demo": "minutes, and serves; tests/service/demo runs a part of it",
    "aladin photos FOLDER": "serves until it is stopped",
    "aladin photos {home}/Pictures": "serves until it is stopped",
    "aladin photos --remove": "needs a library, which `aladin photos FOLDER` makes",
    "aladin train finetune-clip --library": "needs a library of photos with texts;"
    " tests/service/library/test_training_data.py trains one",
    "aladin serve": "serves until it is stopped",
    "aladin mcp": "serves until it is stopped",
    "aladin search --": "needs a service, or names an option alone",
    "aladin search FOLDER": "needs a vector database",
    "aladin search {home}/Pictures": "needs a library, which `aladin photos FOLDER` makes",
    "aladin index push": "needs a vector database",
    "aladin index sync INDEX FOLDER --watch": "watches until it is stopped",
    "aladin index build --model runs/aladin-vinvl": "needs VinVL's regions of COCO",
    "aladin index upgrade": "needs a second model; tests/service/commands/index runs it",
    "aladin train training/recipes/": "hours, and photos and encoders that are not here",
    "aladin compare": "hours",
    "aladin calibrate RUN/checkpoint DATA.jsonl --split selection": "needs the run of Flickr8k",
    "aladin calibrate RUN/checkpoint DATA.jsonl --index": "needs a network that finds something; "
    "tests/service/commands/test_calibrate_and_correct.py runs it",
    "aladin convert towers openai/": "needs the hub",
    "aladin convert oscar": "needs OSCAR's weights",
    "aladin convert aladin": "needs ALADIN's and OSCAR's weights",
    "aladin regions extract": "needs a detector's weights",
    "aladin export onnx": "takes ten seconds; tests/service/commands/test_export.py runs it",
    "aladin evaluate runs/aladin-vinvl": "needs VinVL's regions of COCO",
    "aladin evaluate RUN/checkpoint DATA.jsonl --index INDEX --curve": "its own test draws it",
    "aladin evaluate RUN/checkpoint DATA.jsonl --split val --index INDEX --curve": "the same",
}

# Programs of others, and why none of their lines is run.
OTHERS = {
    "make": "minutes each; .ci/run runs them",
    "pip": "installs",
    "python3": "makes an environment",
    "curl": "needs a service",
    "docker": "needs Docker; tests/docker reads the files",
    "ln": "links data that are not here",
    "python": "a benchmark, of which the options are read, or writes a file of this repository",
}

# Of them 24 validate, as many as probabilities need, and 6 are tested with.
PHOTOS = 60

RECORD = "".join(
    f"{name}() {{ printf '%s\\0' {name} \"$@\"; printf '\\n'; }}\n" for name in ("aladin", *OTHERS)
)


class Said(NamedTuple):
    """A command of a document, as a program receives it."""

    document: str
    words: tuple[str, ...]
    is_whole: bool  # it stands in a block, to be pasted; prose may name a part of a command


def in_bash(script: str, folder: Path) -> Iterator[list[str]]:
    """Let bash read a script, and yield what the recorded programs would receive."""
    # A path of bash's own words: nothing but the functions can run.
    line = ["bash", "-c", f"source() {{ :; }}\nopenssl() {{ :; }}\n{RECORD}{script}"]
    environment = {"HOME": str(folder), "KEY": "key", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, check=True)
    for record in done.stdout.decode().split("\0\n")[:-1]:
        yield record.split("\0")


def commands_of(document: str, folder: Path) -> list[Said]:
    text = read(document)
    blocks = re.findall(r"^ *```bash\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    script = "\n".join(blocks).replace("~/aladin/bin/", "")
    found = [Said(document, tuple(words), True) for words in in_bash(script, folder)]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    codes = re.findall(r"`((?:aladin|python -m) [^`]*)`", prose)
    script = "\n".join(" ".join(code.split()) for code in codes)
    return found + [Said(document, tuple(words), False) for words in in_bash(script, folder)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the documents' commands name; it is copied for each of them."""
    root = tmp_path_factory.mktemp("world")
    for name in ("FOLDER", "LIBRARY"):
        (root / name).mkdir()
    random = np.random.default_rng(0)

    def photo(place: Path) -> None:
        pixels = random.integers(0, 256, (36, 44, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place)

    lines: list[str] = []
    for number in range(PHOTOS):
        name = f"{number:04}"
        photo(root / "FOLDER" / f"{name}.png")
        line = {
            "image": f"FOLDER/{name}.png",
            "captions": [CAPTIONS[number % 4], CAPTIONS[(number + 1) % 4]],
            "split": "val" if number < 24 else "test" if number < 30 else "train",
            "id": "ID" if number == 2 else name,
            "metadata": {"year": 2000 + number % 9, "city": "Bern", "taken_at": "2020-01-02"},
        }
        lines.append(json.dumps(line))
    (root / "DATA.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (root / "SMALL.jsonl").write_text("\n".join(lines[:30]), encoding="utf-8")
    photo(root / "photo.jpg")
    (root / "MORE.jsonl").write_text('{"image": "photo.jpg"}', encoding="utf-8")
    (root / "ADDED.jsonl").write_text(lines[-1], encoding="utf-8")
    (root / "questions.txt").write_text("\n".join(CAPTIONS), encoding="utf-8")
    (root / "training").symlink_to(ROOT / "training")
    (root / "RECIPE").write_text(
        f'extends = "{ROOT}/training/recipes/demo.toml"\nfinal = "teacher"\n'
        '[data]\nsource = "DATA.jsonl"\n[[stage]]\nname = "teacher"\nepochs = 1\n',
        encoding="utf-8",
    )
    (root / "shards").mkdir()
    for number in range(100):
        with tarfile.open(root / "shards" / f"{number:05}.tar", "w") as tar:
            fields = json.dumps({"year": 2020, "city": "Bern"}).encode()
            image = (root / "FOLDER" / f"{number % PHOTOS:04}.png").read_bytes()
            for suffix, content in (("png", image), ("json", fields)):
                entry = tarfile.TarInfo(f"{number:05}.{suffix}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    save_dual_encoder("clip", root / "SOURCE")
    shutil.copytree(root / "SOURCE", root / "SOURCE2")
    from aladin_network.checkpoint import save_checkpoint

    save_checkpoint(root / "RUN" / "checkpoint", tiny_model())
    with contextlib.chdir(root), pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALADIN_RUNTIME", "torch")
        build = ["index", "build", "--model", "RUN/checkpoint", "--images", "SMALL.jsonl"]
        for words in (
            [*build, "--texts", "SMALL.jsonl", "--out", "INDEX"],
            ["index", "add", "INDEX", "--images", "ADDED.jsonl"],
            ["index", "compact", "INDEX"],
            *(
                [*build, "--batch-size", "4", "--part", f"{part}/4", "--out", f"P{part}"]
                for part in range(1, 5)
            ),
            ["index", "export", "INDEX", "--out", "EXPORT"],
        ):
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, (words, done.stderr)
    return root


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[Said]:
    folder = tmp_path_factory.mktemp("said")
    (folder / "docker").mkdir()
    commands = [each for document in RUN_FROM for each in commands_of(document, folder)]
    assert len(commands) > 200
    return [
        each._replace(
            words=tuple(
                STANDS_FOR.get(word.replace(str(folder), "{home}"), word).replace(
                    str(folder), "{home}"
                )
                for word in each.words
            )
        )
        for each in commands
    ]


@functools.cache
def the_root() -> Any:
    """The command line, whose 40 commands take a while to be made."""
    return typer.main.get_command(app)


@functools.cache
def parsed(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Parse a command line; return its command, and the arguments that it lacks.

    Raises:
        Exception: Of the parser, if the command or an option does not exist.
    """
    command = the_root()
    path, left = [], list(words[1:])
    while hasattr(command, "commands") and left and left[0] in command.commands:
        path.append(left.pop(0))
        command = command.commands[path[-1]]
    if hasattr(command, "commands"):
        assert left in ([], ["--help"]), f"no such command: {words}"
        return path, []
    context = command.make_context(path[-1], list(left), resilient_parsing=True)
    values, rest, _ = command.make_parser(context).parse_args(list(left))
    assert not rest, f"more arguments than {path} takes: {words}"
    lacks: list[str] = []
    for parameter in command.params:
        value = values.get(parameter.name)
        is_given = isinstance(value, str | bool | int) or bool(
            value and isinstance(value, list | tuple)
        )
        if parameter.required and not is_given:
            lacks.append(parameter.name)
    return path, lacks


def reason_not_to_run(words: tuple[str, ...]) -> str | None:
    """The entry of `NOT_RUN` that a command begins with."""
    line = " ".join(words)
    return next((each for each in NOT_RUN if line.startswith(each)), None)


def is_to_be_run(command: Said) -> bool:
    """Whether a command is complete: in prose, `aladin calibrate --split` names an option."""
    if command.words[0] != "aladin" or "..." in command.words or "--help" in command.words:
        return False
    path, lacks = parsed(command.words)
    is_complete = len(path) + 1 < len(command.words) and not lacks
    return command.is_whole or is_complete


def test_every_command_is_one_that_can_be_given(said: list[Said]) -> None:
    for command in said:
        assert command.words[0] in ("aladin", *OTHERS), command
        if command.words[0] == "aladin":
            _, lacks = parsed(tuple(word for word in command.words if word != "..."))
            assert not (lacks and command.is_whole), (command, lacks)
        for word in command.words:
            recipe = re.search(r"training/recipes/[\w./-]+", word)
            assert recipe is None or (ROOT / recipe[0]).exists(), command


def test_what_is_not_run_and_what_stands_for_something_is_in_a_document(said: list[Said]) -> None:
    whole = [" ".join(command.words) for command in said if is_to_be_run(command)]
    for beginning in NOT_RUN:
        assert any(line.startswith(beginning) for line in whole), beginning
    text = "\n".join(read(document) for document in RUN_FROM)
    for word in STANDS_FOR:
        assert word in text, word
    assert {command.words[0] for command in said} == {"aladin", *OTHERS}


def test_every_command_runs_as_it_is_pasted(
    said: list[Said], world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MODELS", "LIBRARIES"):
        monkeypatch.setenv(f"ALADIN_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.setenv("ALADIN_RUNTIME", "torch")  # no graphs, which take seconds
    monkeypatch.setattr("aladin_training.correction._LEAST", 2)
    # The hub's CLIP is the small one of the folder.
    monkeypatch.setattr(
        "aladin_network.conversion.named_models._downloaded", lambda _: world / "SOURCE"
    )
    lines = {
        command.words: command.document
        for command in said
        if is_to_be_run(command) and reason_not_to_run(command.words) is None
    }
    assert len(lines) > 30
    failed: list[str] = []
    for number, (words, document) in enumerate(lines.items()):
        place = tmp_path / str(number)
        shutil.copytree(world, place, symlinks=True)
        if "--out" in words:  # most say what they make: it is not there yet
            out = place / words[words.index("--out") + 1]
            shutil.rmtree(out, ignore_errors=True)
        monkeypatch.chdir(place)
        done = CliRunner().invoke(app, list(words[1:]))
        if done.exit_code != 0:
            failed.append(f"{document}: {' '.join(words)}\n    {done.stderr[-500:]}")
        shutil.rmtree(place)
    assert not failed, "\n".join(failed)


def test_every_benchmark_that_is_named_has_the_options_that_are_given(
    said: list[Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    modules: dict[str, set[str]] = {}
    for command in said:
        if command.words[:2] == ("python", "-m") and command.words[2].startswith("benchmarks."):
            options = modules.setdefault(command.words[2], set())
            options |= {word for word in command.words[3:] if word.startswith("--")}
    assert len(modules) > 5
    for module, options in modules.items():
        if module == "benchmarks.search.mteb_recalls" and find_spec("mteb") is None:
            continue  # a package of `make test-clients`
        monkeypatch.setattr(sys, "argv", [module, "--help"])
        shown = io.StringIO()
        monkeypatch.delitem(sys.modules, module, raising=False)  # runpy warns of a loaded one
        with contextlib.redirect_stdout(shown), pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        assert ended.value.code in (0, None), module
        for option in options:
            assert option in shown.getvalue(), f"{module} {option}"
