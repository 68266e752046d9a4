"""Measures models that come as graphs, at the size of CLIP ViT-B/32, with random weights.

    python -m benchmarks.index.graph_models [--photos N]

Writes a model in the layout of transformers.js, whole, in half precision and quantised, opens each
by its folder as `aladin photos --model FOLDER` does, and encodes photos of 640 x 480 pixels and
texts with it, on one thread, in a process of its own without torch. Prints what it takes on the
disk, once linked, and in memory, and photos a second, also as a ratio to the whole one. Random
weights rank nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Run in the other process, with the folder, the cache and the number of photos.
MEASURE = """
import json, sys, time
from pathlib import Path
for name in ("torch", "transformers", "onnx"):
    sys.modules[name] = None
import numpy as np
from PIL import Image
from aladin_network.conversion.named_models import named_model
from aladin_network.graphs.loading import load_for_inference
from aladin_network.inference import encode_photos, encode_texts

name, cache, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
started = time.perf_counter()
folder = named_model(name, lambda: cache)
opened = time.perf_counter() - started
model = load_for_inference(folder).model
random = np.random.default_rng(0)
pixels = random.integers(0, 256, (48, 64, 3), dtype=np.uint8)
photos = [Image.fromarray(np.roll(pixels, at, 1)).resize((640, 480)) for at in range(count)]
encode_photos(model, photos[:1]), encode_texts(model, ["a dog"])
started = time.process_time()
for photo in photos:
    encode_photos(model, [photo])
photo_s = (time.process_time() - started) / count
started = time.process_time()
for number in range(20):
    encode_texts(model, [f"{number} dogs on the grass"])
text_s = (time.process_time() - started) / 20
files = [path.stat() for path in folder.rglob("*") if path.is_file()]
# Of this program alone; what getrusage says includes the process that started it.
status = Path("/proc/self/status").read_text().splitlines()
peak_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps({
    "open_s": opened,
    "model_mb": sum(each.st_size for each in files) / 1e6,
    "own_mb": sum(each.st_size for each in files if each.st_nlink == 1) / 1e6,
    "photos_a_second": 1 / photo_s,
    "text_ms": 1000 * text_s,
    "memory_mb": peak_kb / 1024,
}))
"""


def write_model(folder: Path) -> None:
    """Write the whole model, that in half precision and the quantised one."""
    import onnx
    import torch
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from transformers import (
        CLIPTextConfig,
        CLIPTextModelWithProjection,
        CLIPVisionConfig,
        CLIPVisionModelWithProjection,
    )

    (folder / "onnx").mkdir()
    torch.manual_seed(0)
    warnings.simplefilter("ignore")  # the exporter's, of its own parts
    towers: dict[str, tuple[Any, Any, str, str]] = {
        "vision": (
            CLIPVisionModelWithProjection(CLIPVisionConfig()),
            torch.zeros(1, 3, 224, 224),
            "pixel_values",
            "image_embeds",
        ),
        "text": (
            CLIPTextModelWithProjection(CLIPTextConfig(eos_token_id=2)),
            torch.tensor([[0, 5, 6, 2], [0, 5, 2, 2]]),
            "input_ids",
            "text_embeds",
        ),
    }
    for part, (tower, sample, takes, gives) in towers.items():
        path = folder / "onnx" / f"{part}_model.onnx"
        free = {0: "batch"} if part == "vision" else {0: "batch", 1: "sequence"}
        torch.onnx.export(
            _Embedding(tower.eval()),
            (sample,),
            str(path),
            input_names=[takes],
            output_names=[gives],
            dynamic_axes={takes: free, gives: {0: "batch"}},
            dynamo=False,
        )
        quantize_dynamic(path, path.with_name(f"{part}_model_quantized.onnx"))
        half = convert_float_to_float16(onnx.load(path), keep_io_types=True)
        onnx.save(half, path.with_name(f"{part}_model_fp16.onnx"))
    _describe(folder)


class _Embedding:
    """Stands for the class that needs torch, which is imported later."""

    def __new__(cls, tower: Any) -> Any:
        from torch import nn

        class Embedding(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.tower = tower

            def forward(self, values: Any) -> Any:
                return self.tower(values)[0]

        return Embedding()


def _describe(folder: Path) -> None:
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import BPE
    from tokenizers.processors import TemplateProcessing
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<unk>", "</s>"]
    trainer = BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["two dogs on the grass"], trainer)
    ids = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    tokenizer.save(str(folder / "tokenizer.json"))
    photos = {
        "crop_size": 224,
        "do_center_crop": True,
        "size": 224,
        "resample": 3,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    for name, data in {
        "config.json": {"model_type": "clip"},
        "tokenizer_config.json": {"pad_token": "</s>"},
        "preprocessor_config.json": photos,
    }.items():
        (folder / name).write_text(json.dumps(data))


def write_as_immich(model: Path, folder: Path) -> None:
    """Write the whole model of `write_model` again, in Immich's layout; the graphs are linked."""
    for part, theirs in (("visual", "vision"), ("textual", "text")):
        (folder / part).mkdir(parents=True)
        os.link(model / "onnx" / f"{theirs}_model.onnx", folder / part / "model.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        os.link(model / name, folder / "textual" / name)
    photos = json.loads((model / "preprocessor_config.json").read_text())
    shown = {
        "size": photos["size"],
        "mean": photos["image_mean"],
        "std": photos["image_std"],
        "interpolation": "bicubic",
    }
    (folder / "visual" / "preprocess_cfg.json").write_text(json.dumps(shown))
    (folder / "config.json").write_text(json.dumps({"text_cfg": {"context_length": 77}}))


def main() -> None:
    """Print the figures of all variants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=int, default=40)
    count = parser.parse_args().photos
    with TemporaryDirectory() as made:
        folder = Path(made) / "clip"
        folder.mkdir()
        write_model(folder)
        figures: dict[str, dict[str, float]] = {}
        for variant in ("", ":fp16", ":quantized"):
            words = [f"{folder}{variant}", str(Path(made) / "models"), str(count)]
            done = subprocess.run(
                [sys.executable, "-c", MEASURE, *words],
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1", "ALADIN_RUNTIME": "auto"},
            )
            figures[variant or "whole"] = json.loads(done.stdout)
    for name, each in figures.items():
        print(f"{name:12}" + "  ".join(f"{key} {value:,.1f}" for key, value in each.items()))
    for variant in (":fp16", ":quantized"):
        ratio = figures[variant]["photos_a_second"] / figures["whole"]["photos_a_second"]
        print(f"{variant} photos a second / whole: {ratio:.2f}")


if __name__ == "__main__":
    main()
