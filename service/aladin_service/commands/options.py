"""The detector of the commands that take photos, for networks that read regions.

Options of the commands that can use a graphics card.

Options of the commands that take a data set, for networks that read ready-made regions.

The form of the log of commands that run as services do.

Arguments that several commands of ``aladin index`` take.

Amounts of memory as people write them.

The option for the size of items' metadata, of commands that take new items.

Options of the commands that may have a Ray cluster do their work.

What ``--split`` of the command line means.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aladin_service.observe.logs import LogFormat, log_setup, log_to_stderr

if TYPE_CHECKING:
    from aladin_index.settings import MetadataLimits
    from aladin_network.detectors.base import Detector
    from aladin_network.encoders.base import ImageEncoder
    from aladin_training.data.regions import RegionStore

DETECTOR_HELP = (
    "Finds the regions of photos, for networks that read regions: folder or hub name of an object "
    "detector of the DETR family, windows=CLASSIFIER, or MODULE:NAME=SOURCE of your own; options "
    "follow after commas, as threshold=0.3."
)
DetectorOption = Annotated[
    str | None,
    typer.Option(
        "--detector",
        metavar="D",
        help=f"{DETECTOR_HELP} If omitted, as ALADIN_DETECTOR says.",
        show_default=False,
    ),
]


def named_detector(detector: str | None) -> str | None:
    """Return the name of the detector that --detector, or ALADIN_DETECTOR, gives."""
    if detector is not None:
        return detector
    from aladin_service.settings import read_settings

    return read_settings().detector


def detector_for(
    encoder: ImageEncoder, detector: str | None, device: str = "cpu"
) -> Detector | None:
    """Load the detector of a model that reads regions.

    Args:
        encoder: of the model.
        detector: as --detector gives it; None: as ALADIN_DETECTOR does, which a model that reads
            photos leaves alone.
        device: where to run it.

    Returns:
        None where there is none.

    Raises:
        ConfigError: there is no such detector, an option of it is impossible, or it is not the
            one that the model was trained with.
        CheckpointError: its weights cannot be loaded.
    """
    if detector is None and encoder.reads == "photo":
        return None
    name = named_detector(detector)
    if name is None:
        return None
    from aladin_index.encode.item_encoders import check_detector
    from aladin_network.detectors.base import load_detector

    found = load_detector(name, device)
    check_detector(encoder, found)
    return found


class Device(StrEnum):
    """Where the network runs, and searches."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class FirstStage(StrEnum):
    """What finds the candidates."""

    faiss = "faiss"
    torch = "torch"


SearchDeviceOption = Annotated[
    Device,
    typer.Option(
        "--device",
        help="Where the network and the searches run; auto takes a CUDA card if there is one. A "
        "card that cannot search is left to itself with one warning.",
    ),
]
FirstStageOption = Annotated[
    FirstStage,
    typer.Option(
        "--first-stage",
        help="faiss searches the index as it was built, on a card a copy of it; torch compares "
        "with every item, and re-ranks on the card too.",
    ),
]
WarmOption = Annotated[
    bool,
    typer.Option("--warm", help="Have the index's files read into memory before the first query."),
]


def network_device(device: Device) -> str:
    """Return the name by which torch knows the device that a network is to run on.

    Raises:
        ConfigError: there is no CUDA card, and one is asked for.
    """
    import torch

    from aladin_network.errors import ConfigError

    if device is Device.cpu or torch.cuda.is_available():
        return "cpu" if device is Device.cpu else "cuda"
    if device is Device.cuda:
        raise ConfigError("--device cuda: PyTorch finds no CUDA device here; give cpu or auto")
    return "cpu"


RegionsOption = Annotated[
    Path | None,
    typer.Option(
        "--regions",
        metavar="PATH",
        help="Ready-made regions of the photos, for networks that read these: VinVL's or bottom-up "
        "attention's .tsv, a folder of .npz or .npy files, HDF5, or SCAN's precomp folder. Files "
        "of photos may then be missing.",
    ),
]
RegionLabelsOption = Annotated[
    Path | None,
    typer.Option(
        "--region-labels",
        metavar="FILE",
        help="Labels of --regions where they lie apart: .tsv such as predictions.tsv, or .json.",
    ),
]


def opened_regions(regions: Path | None, labels: Path | None) -> RegionStore | None:
    """Open what --regions and --region-labels name; None: nothing.

    Raises:
        InputError: there are labels without regions.
        DataError: a file cannot be used.
    """
    from aladin_network.errors import InputError
    from aladin_training.data.regions import open_regions

    if regions is None:
        if labels is not None:
            raise InputError("--region-labels: expected also --regions, which they belong to")
        return None
    return open_regions(regions, labels)


def set_log_format(chosen: LogFormat | None = None) -> None:
    """Write the log from here on as its readers want it.

    Args:
        chosen: on the command line; None: as ALADIN_LOG_FORMAT says.

    Raises:
        ConfigError: a variable ALADIN_... is impossible.
    """
    from aladin_service.settings import read_settings

    format = read_settings().log_format if chosen is None else chosen
    log_to_stderr(log_setup()._replace(format=format))


IndexArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of an index.")]
PhotosRootOption = Annotated[
    Path | None,
    typer.Option(
        "--photos-root",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Take only photos inside of this folder, after all links are followed. [default: "
        "photos from anywhere, with a warning of those outside of the source's folder]",
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE.png", dir_okay=False, help="Draw both curves of each side."
    ),
]


_FACTORS = {"": 1, "B": 1} | {
    f"{prefix}{form}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for form, base in (("B", 1000), ("iB", 1024))
}


def parse_bytes(text: str) -> int:
    """Read a number of bytes: ``8GiB`` (8 x 1024^3), ``1.5 GB`` (1.5 x 1000^3), ``4096``.

    Raises:
        BadParameter: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _FACTORS:
        units = ", ".join(unit for unit in _FACTORS if unit)
        raise typer.BadParameter(f"expected a size such as 8GiB, got {text!r} (units: {units})")
    size = int(float(match[1]) * _FACTORS[match[2]])
    if size < 1:
        raise typer.BadParameter(f"expected at least one byte, got {text!r}")
    return size


MaxMetadataOption = Annotated[
    int | None,
    typer.Option(
        "--max-metadata",
        metavar="SIZE",
        parser=parse_bytes,
        help="Maximum size of an item's metadata, written as JSON. The command refuses a larger "
        "one, and names the item. [default: 64KiB]",
    ),
]


def metadata_limits(max_bytes: int | None) -> MetadataLimits:
    """Return the limits of metadata.

    Args:
        max_bytes: value of the option.
    """
    from aladin_index.settings import DEFAULT_METADATA_LIMITS, MetadataLimits

    return DEFAULT_METADATA_LIMITS if max_bytes is None else MetadataLimits(max_bytes=max_bytes)


RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Encode on the nodes of a Ray cluster: HOST:PORT of its head or auto, on a machine "
        "of the cluster; ray://HOST:PORT from elsewhere; local for this machine's cores.",
    ),
]
RayWorkersOption = Annotated[
    int | None,
    typer.Option(
        "--ray-workers",
        min=1,
        help="Workers; each holds the network and encodes one shard after the other. [default: as "
        "many as the nodes hold, also those that join later]",
    ),
]
RayCpusOption = Annotated[
    int | None,
    typer.Option("--ray-cpus", min=1, help="Cores of a worker, and its readers. [default: 1]"),
]


def check_ray_options(ray: str | None, workers: int | None, cpus: int | None) -> None:
    """Refuse options of workers where there are none.

    Raises:
        InputError: --ray is missing.
    """
    from aladin_network.errors import InputError

    for name, value in (("--ray-workers", workers), ("--ray-cpus", cpus)):
        if ray is None and value is not None:
            raise InputError(f"{name}: expected also --ray, whose workers it is about")


def workers_device(ray: Any, device: Device) -> str:
    """Return the name by which torch knows the device of each worker.

    Args:
        ray: of `aladin_index.cluster.ray_encoding.connected`.
        device: auto takes a CUDA card each where nodes have any.
    """
    from aladin_index.cluster.ray_encoding import has_gpus

    if device is Device.auto:
        return "cuda" if has_gpus(ray) else "cpu"
    return device.value


ALL_SPLITS = "all"
SPLIT_HELP = f"Split of DATA; {ALL_SPLITS!r} takes every photo."


def chosen_split(word: str) -> str | None:
    """Return the split that the readers take; None: every photo."""
    return None if word == ALL_SPLITS else word
