"""Every refusal of every command: exit code 2, one reason, nothing on stdout, nothing on disk."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aladin_service.cli import app
from aladin_training.config.shipped import recipes_folder
from tests.index.engines.memory_engine import MemoryEngine
from tests.service.commands.conftest import write_lines
from tests.service.conftest import make_photo
from tests.service.engine_world import EngineWorld

USAGE = [
    "nonsense",
    "help nonsense",
    "search",
    "search index --colour red",
    "search index dog -k 0",
    "search index dog -k ten",
    "search index dog --fusion 2",
    "search index dog --target sounds",
    "search index --image missing.jpg",
    "index build --images x",
    "index build --model tiny --images data.jsonl --out new --tokens 1bit",
    "train recipe.toml",
    "mine tiny data.jsonl --out new --texts 0",
    "mine tiny data.jsonl --out new --score cosine",
]
BUILD = "index build --model tiny --images data.jsonl --out new"
EVALUATE = "evaluate tiny data.jsonl"
CURVE = f"{EVALUATE} --index index --curve new.png --curve-candidates"
DRAW = "search index dog --explain --out"
TUNE = "index tune index --at 2 --num-queries 8"
NO_INDEX = "no index here"
IN_ENGINE = "expected an index of files, got one that a vector database stores"
REFUSED = [
    # What is searched, and for what.
    ("search empty dog", NO_INDEX),
    ("search empty -- --debug", NO_INDEX),
    ("search index", "expected exactly one of text, image, id, regions"),
    ("search index dog --id x", "got text and id"),
    ("search index dog --filter {", "--filter: not JSON"),
    ("search index dog --filter [1]", "--filter: expected a JSON object"),
    ('search index dog --filter \'{"number": {"about": 3}}\'', "about"),
    ("search index --id nobody", "no item 'nobody'"),
    ("search index ' '", "the text is empty"),
    (f"search index '{'dog ' * 25_000}'", "100000 characters"),
    ("search index --image data.jsonl", "not an image"),
    ("search --id nobody", "exactly one of INDEX and --url, got neither"),
    ("search --url URL index dog", "exactly one of INDEX and --url, got both"),
    ("search --url URL", "exactly one of text, image, id, regions, or the"),
    ("search --url URL dog --id b", "got text and id"),
    ("search --url URL dog --device auto", "a service has its own"),
    ("search --url URL --id nobody", "no item 'nobody'"),
    ("search --url URL ' '", "the text is empty"),
    ("search --url localhost dog", "http://127.0.0.1:8000"),
    ("search --url URL dog --box 0,0,1,1", "box: expected a photo beside it"),
    ("search --url URL --id plain --box 0,0,1", "--box: expected x0, y0, x1, y1 in"),
    ("search --url URL --id plain --box 0,0,1,2", "--box: expected x0, y0, x1, y1 in"),
    ("search --url URL --id plain --box all", "--box: expected x0,y0,x1,y1, got"),
    ("search --url URL --id plain#0 --box 0,0,1,1", "box: expected a photo to take"),
    ("search --url URL dog --min-probability 0.5", "the index is not calibrated"),
    ("search index dog --out new.png", "--out: expected --explain too"),
    (f"{DRAW} new.jpg", "ends in .png, got new.jpg"),
    (f"{DRAW} new.png -k 21", "at most 20, got 21"),
    ("search index --id plain --explain --out new.png", "there is no evidence to draw"),
    (f'{DRAW} new.png --filter \'{{"tags": "none"}}\'', "nothing was found"),
    (f"{DRAW} file/x.png", "--out: file/x.png cannot be written ("),
    ("search a dog", "a: no index here, it has no CURRENT; "),
    ("search index dog -0", "-0: expected --paths with it"),
    ("search index dog --paths --json", "--paths: expected no --json with it"),
    ("search --url URL dog --paths", "--paths: expected INDEX, got --url"),
    # Indexes that are made.
    ("index build --model nomodel --images photos --out new", "not a checkpoint"),
    ("index build --model nobody/x --images photos --out new", "nobody/x"),
    ("index build --model empty --out new", "got neither"),
    ("index build --model tiny --images nothing --out new", "no such file or folder"),
    ("index build --model tiny --images damaged --out new", "none of 1 could be used"),
    ("index build --model tiny --images unread --out new", "1 skipped, e.g. a.jxl: JPEG XL"),
    ("index build --model tiny --images photos empty --out new", "empty: holds no photo"),
    ("index build --model tiny --images photos photos/1.png --out new --strict", "'1.png'"),
    ("index build --model tiny --images photos gone.png --out new", "gone.png: no such file"),
    (f"{BUILD} --part 2-3", "expected a part such as 1/4, got '2-3'"),
    (f"{BUILD} --part 4/3", "part: expected a number from 1 to 3, got 4"),
    (f"{BUILD} --ray-workers 2", "--ray-workers: expected also --ray"),
    (f"{BUILD} --ray-cpus 2", "--ray-cpus: expected also --ray"),
    (f"{BUILD} --ray somewhere", "'somewhere': expected HOST:PORT"),
    (f"{BUILD} --memory-budget much", "expected a size such as 8GiB, got 'much'"),
    (f"{BUILD} --ann-recall 1.5", "ann_recall: expected more than 0 and at most 1, got 1.5"),
    (f"{BUILD} --photos-root empty", "expected at least one item, got none; 6 skipped"),
    ("index build --model tiny --images photos --out project", "a folder that contains 'model'"),
    ("index merge nomodel photos --out new", "nomodel"),
    ("index merge index empty index --out new", "index: given twice"),
    ("index import nomodel --model tiny --out new", "nomodel"),
    ("index import clip --model tiny --out new", "size of an embedding: expected 16, got 512"),
    ("index export nomodel --out new", NO_INDEX),
    ("index export index --out photos", "already exists"),
    ("prepare new --photos photos --model nomodel", "nomodel"),
    ("prepare new --photos nothing --model tiny", "nothing"),
    (
        "prepare new --photos photos --model ./no/such/model",
        "no/such/model: no such folder",
    ),
    (
        "index build --model ./no/such/model --images photos --out new",
        "no/such/model: no such folder",
    ),
    # Indexes that are changed or described.
    ("index info empty", NO_INDEX),
    ("index info index --plot curves.doc", "expected the name of a .png file"),
    ("index info index --plot file/curves.png", "cannot be written ("),
    ("index info engine --plot curves.png", "expected an index of files"),
    ("index verify empty", NO_INDEX),
    ("index add index", "--images, --texts or both"),
    ("index add nomodel --images photos", NO_INDEX),
    ("index delete index --target texts", "at least one ID"),
    ("index delete empty --target texts a", NO_INDEX),
    ("index compact photos", NO_INDEX),
    ("index rollback photos", NO_INDEX),
    ("index sync new photos", NO_INDEX),
    ("index sync nomodel photos", NO_INDEX),
    ("index sync index photos --watch --dry-run", "--watch: expected neither --dry-run nor"),
    ("index sync index photos --poll 1", "--poll: expected --watch"),
    (f"{TUNE} --fidelity 2", "fidelity: expected more than 0 and at most 1, got 2.0"),
    (f"{TUNE} --plot curves.svg", "expected the name of a .png file"),
    (f"{TUNE} --plot file/curves.png", "cannot be written ("),
    (f"{TUNE} --queries none.txt", "expected texts or photos"),
    (f"{TUNE} --queries data.jsonl --device cuda", "--device cuda: PyTorch finds no CUDA"),
    ("index push index --out new", "a first push needs --url and --name: no --url, --name"),
    ("index push index --out new --url http://a", "no --name"),
    ("index push index --out new --url a --name b", "url: expected http://"),
    ("index push index --out new --index-param M", "--index-param: expected KEY=VALUE, got 'M'"),
    ("index export engine --out new", IN_ENGINE),
    ("index merge engine index --out new", IN_ENGINE),
    ("index build --model tiny --images data.jsonl --out engine", IN_ENGINE),
    ("index compact engine", IN_ENGINE),
    ("index tune engine", IN_ENGINE),
    ("index verify engine", IN_ENGINE),
    ("calibrate tiny data.jsonl --index engine", IN_ENGINE),
    # Networks that are trained, judged or converted.
    ("train empty/none.toml --out new", "no such recipe"),
    ("train bad.toml --out new", "bad.toml"),
    ("train demo --out new --set data.source=nothing.jsonl", "nothing.jsonl"),
    ("train demo --out new --set stage.teacher.epoch=1", "epoch"),
    ("train demo --out new --set stage.teacher.epochs=0", "epochs"),
    ("train demo --out new --set stage.nobody.epochs=1", "nobody"),
    ("train demo --out new --set stage", "key=value"),
    ("compare bad.toml --out new", "bad.toml"),
    ("compare plain.toml --out new --baseline nobody", "nobody"),
    ("compare plain.toml --out new --set seeds=2", "seeds"),
    ("compare plain.toml --out new --data a/captions.jsonl --data b/a.json", "both named 'a'"),
    ("compare plain.toml --out new --correct --folds 2", "not evaluated in blocks"),
    ("evaluate empty data.jsonl", "not a checkpoint"),
    (f"{EVALUATE} --split dev", "no split 'dev'"),
    (f"{EVALUATE} --split all --folds 7", "folds: expected at most 6, the number of photos"),
    (f"{EVALUATE} --curve c.png", "--curve: expected also --index"),
    (f"{EVALUATE} --index index --curve-candidates 5", "--curve-candidates: expected also --curve"),
    (f"{EVALUATE} --index index --curve c.gif", "one of .json, .pdf, .png, .svg, got c.gif"),
    (f"{EVALUATE} --index index --curve file/c.json", "cannot be written"),
    (f"{CURVE} 5,many", "expected whole numbers and commas, got '5,many'"),
    (f"{CURVE} 10,5", "numbers of candidates: expected ascending ones from 1, got 10,5"),
    (f"{CURVE} 0,5", "numbers of candidates: expected ascending ones from 1, got 0,5"),
    ("calibrate tiny data.jsonl --false-alarms 1", "false_alarms: expected at least 0 and less"),
    ("calibrate tiny data.jsonl --report-split val", "a split other than the fitted one"),
    ("calibrate tiny data.jsonl --split dev", "has no split 'dev', known are ['test', 'val']"),
    ("calibrate tiny data.jsonl --split test", "expected at least 20 photos with captions, found"),
    ("correct tiny data.jsonl --split test", "training photos"),
    ("mine nomodel photos --out new", "not a checkpoint"),
    ("mine tiny data.jsonl --out file/new", "--out: file/new cannot be written"),
    ("mine tiny data.jsonl --out new --split train", "no split 'train'"),
    ("mine tiny data.jsonl --out new --split val", "at least 2 photos, got 1"),
    ("mine tiny data.jsonl --out new --split test --score attention", "no score 'attention'"),
    ("mine tiny data.jsonl --out file --split all", "not a file of mined negatives"),
    ("convert towers nomodel --out new", "nomodel: cannot load a"),
    ("convert towers /nowhere/none --out new", "there is no such folder"),
    ("convert towers nowhere --out photos", "there is something already"),
    ("export onnx nomodel --out new", "not a checkpoint"),
    ("export onnx nowhere --out new", "nowhere: no such folder; expected a"),
    ("export onnx tiny --out photos", "there is something already"),
    # What serves.
    ("serve missing", NO_INDEX),
    ("serve nomodel", "use --wait to start the service before an index is published"),
    ("serve nomodel --workers 2", "nomodel: no index here"),
    ("serve index --port TAKEN", "cannot listen on 127.0.0.1, port"),
    ("serve index --port 0 --host 0.0.0.0", "listens on 127.0.0.1 only, not on 0.0.0.0"),
    ("serve index --port 0 --host ::", "--allow-anonymous"),
    ("serve index --port 0 --keys gone.json", "gone.json"),
    ("serve index --port 0 --keys object.json", "object.json"),
    ("demo --out new --port TAKEN", "choose another with --port"),
    ("demo --out new --host 0.0.0.0", "without keys the service listens on 127.0.0.1 only"),
    ("demo --out new --host ::", "without keys the service listens on 127.0.0.1 only"),
    ("mcp", "expected either INDEX or --url, got neither"),
    ("mcp index --url http://x", "expected either INDEX or --url, got both"),
    ("mcp new", "new"),
    ("photos", "expected at least one FOLDER of photos, got none"),
    ("photos nowhere", "nowhere: expected a folder of photos, found nothing"),
    ("photos file", "file: expected a folder of photos, found a file"),
    ("photos clip clip/img_emb", "clip: give only the outer folder"),
    ("photos unread", "unread: expected photos here or in a subfolder, found none"),
    ("photos photos --exclude *.png", "expected photos here or in a subfolder, found none"),
    ("photos photos", "the hub cannot be reached"),
    ("photos photos --model nobody/nothing", "nobody/nothing: the hub cannot be reached"),
    ("photos photos --model empty", "empty: not a checkpoint, it has no config.json"),
    ("photos photos --model broken", "broken/model.safetensors"),
    ("photos photos --model untrained", "the towers of this model were never trained together"),
    ("photos photos --model drawn", "trained on the drawn scenes of `aladin demo` alone"),
    ("photos photos --model vision", "expected a dual encoder such as CLIP or SigLIP"),
    ("photos damaged --model tiny", "no photo to begin with"),
    ("photos damaged --model tiny", "none of 1 could be used"),
    ("photos photos --model tiny --no-browser --port TAKEN", "it is in use"),
    ("photos --remove nothing", "nothing"),
    ("key add ci --keys keys.json --rate 0", "--rate: expected a number above 0"),
    ("key add ci --keys keys.json --rate nan", "--rate: expected a number above 0"),
    ("key add ci --keys keys.json --burst 3", "--burst: expected --rate with it"),
    ("key add 'a b' --keys keys.json", "expected a name"),
    ("key remove ci --keys keys.json", "cannot read the keys"),
    ("key list --keys keys.json", "cannot read the keys"),
]
# Networks by how they were made.
KNOW_NOTHING = {
    "untrained": {"converted_from": {"vision": "dino", "text": "bert"}, "seed": 0},
    "drawn": {"name": "demo", "data": {"source": "aladin-demo/data/captions.jsonl"}},
}
# The folder of every output is tried before the work.
NOWHERE = [
    "train demo",
    "compare demo flickr8k",
    "demo --no-serve",
    "convert towers someone/clip",
    "export onnx tiny",
    "index export index",
    "regions extract data.jsonl --detector someone/detr",
]


@pytest.fixture(scope="module")
def place(
    tiny_checkpoint: Path,
    index_folder: Path,
    data_file: Path,
    pushed: EngineWorld,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A working folder with what the commands name, and with nothing that is called new."""
    root = tmp_path_factory.mktemp("refused") / "work"
    shutil.copytree(data_file.parent, root)
    for folder, name in (
        *((tiny_checkpoint, name) for name in ("tiny", "project/model", "broken", *KNOW_NOTHING)),
        *((index_folder, "index"), (pushed.folder, "engine")),
    ):
        shutil.copytree(folder, root / name)
    for name, recipe in KNOW_NOTHING.items():
        config = json.loads((root / name / "config.json").read_text(encoding="utf-8"))
        config["provenance"] |= {"recipe": json.dumps(recipe), "stage": "convert"}
        (root / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in ("photos", "damaged", "unread", "nomodel", "empty", "clip/img_emb", "vision"):
        (root / name).mkdir(parents=True)
    make_photo(1).save(root / "photos" / "1.png")
    np.save(root / "clip" / "img_emb" / "img_emb_0.npy", np.ones((3, 512), np.float32))
    (root / "vision" / "config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    for name in (
        "broken/model.safetensors",
        "damaged/1.png",
        "unread/a.jxl",
        "nomodel/readme.txt",
        "bad.toml",
        "file",
    ):
        (root / name).write_text("none of these", encoding="utf-8")
    shutil.copyfile(recipes_folder() / "demo.toml", root / "plain.toml")
    write_lines(root / "none.txt", "")
    write_lines(root / "object.json", "{}")
    return root


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch, pushed: EngineWorld) -> Iterator[Path]:
    """The working folder, with no hub and no card; what is in it stays as it is."""
    monkeypatch.setenv("ALADIN_LIBRARIES_DIR", "libraries")
    monkeypatch.setenv("ALADIN_MODELS_DIR", str(place.parent / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(place.parent / "hub"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("aladin_index.open.connect", lambda *_: MemoryEngine(pushed.server))
    monkeypatch.chdir(place)

    def state() -> dict[Path, bytes | None]:
        # The lock that orders writers stays: two writers would each have their own.
        found = (each for each in place.rglob("*") if not each.name.endswith(".lock"))
        return {each: each.read_bytes() if each.name == "CURRENT" else None for each in found}

    before = state()
    yield place
    assert state() == before


def refusal(line: str, **stands_for: str) -> list[str]:
    words = [stands_for.get(word, word) for word in shlex.split(line)]
    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, refused.stdout) == (2, ""), refused.output
    assert "Traceback" not in refused.stderr
    return refused.stderr.splitlines()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("line", USAGE)
def test_a_command_line_that_cannot_be_parsed_is_refused(line: str) -> None:
    assert refusal(line)[-1].startswith("Error: ")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("line", "says"), REFUSED, ids=lambda each: each[:60])
def test_a_refused_command_says_why_and_leaves_nothing(line: str, says: str, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lines = refusal(line, URL=url, TAKEN=str(taken.getsockname()[1]))
    assert lines[-1].lower().startswith("error: ")
    assert says in " ".join(lines)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("line", NOWHERE)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(line: str) -> None:
    last = refusal(f"{line} --out /proc/out")[-1]
    assert last.startswith("error: cannot write to /proc/out")
    assert "No such file or directory" in last and "Errno" not in last
