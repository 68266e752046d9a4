"""Options and arguments shared by several commands, and their conversion to values."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aladin_network.types import DeviceName
from aladin_service.observe.logs import LogFormat, log_setup, log_to_stderr

if TYPE_CHECKING:
    from aladin_index.settings import MetadataLimits
    from aladin_training.data.regions import RegionStore

_LOG = logging.getLogger(__name__)

# Networks, data sets and their regions.

CheckpointArgument = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="Folder of a network.")
]
DataArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="Data set with captions, of any format.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ALL_SPLITS = "all"
SPLIT_HELP = (
    f"Split of DATA; {ALL_SPLITS!r} takes every photo, 'selection' the photos that the recipe of "
    "CHECKPOINT kept apart."
)
SplitOption = Annotated[str, typer.Option("--split", help=SPLIT_HELP)]
PartOfDataOption = Annotated[
    str | None,
    typer.Option("--split", help="Split of the data set to take. [default: all of it]"),
]
RegionsOption = Annotated[
    Path | None,
    typer.Option(
        "--regions",
        metavar="PATH",
        help="Precomputed regions of the photos, for networks that read them: .tsv of VinVL or "
        "bottom-up attention, folder of .npz or .npy files, or precomp folder of SCAN. The "
        "photos' files may then be missing.",
    ),
]
RegionLabelsOption = Annotated[
    Path | None,
    typer.Option(
        "--region-labels",
        metavar="FILE",
        help="Labels of --regions if they are in a file of their own: .tsv such as "
        "predictions.tsv, or .json.",
    ),
]
DETECTOR_HELP = (
    "Finds the regions of photos, for networks that read regions: folder or hub name of an object "
    "detector of the DETR family, windows=CLASSIFIER, or MODULE:NAME=SOURCE for one of your own; "
    "options follow after commas, such as threshold=0.3."
)
DetectorOption = Annotated[
    str | None,
    typer.Option(
        "--detector",
        metavar="D",
        help=f"{DETECTOR_HELP} Default: ALADIN_DETECTOR.",
        show_default=False,
    ),
]


def chosen_split(word: str) -> str | None:
    """Return the split to read, or None for every photo."""
    return None if word == ALL_SPLITS else word


def opened_regions(regions: Path | None, labels: Path | None) -> RegionStore | None:
    """Open the regions of --regions and --region-labels, or return None without these."""
    from aladin_network.errors import InputError
    from aladin_training.data.regions import open_regions

    if regions is None:
        if labels is not None:
            raise InputError("--region-labels: expected also --regions, which they belong to")
        return None
    return open_regions(regions, labels)


# Devices.

SearchDeviceOption = Annotated[
    DeviceName,
    typer.Option(
        "--device",
        help="Where the network and both stages of a search run. cuda is a GPU, or an error; auto "
        "a GPU if there is one, and the CPU, after one warning, if the index does not fit there.",
    ),
]
WarmOption = Annotated[
    bool,
    typer.Option("--warm", help="Read the index's files into memory before the first query."),
]


def network_device(device: DeviceName) -> str:
    """Return torch's name of the device to run a network on.

    Raises:
        ConfigError: If "cuda" is requested and there is no CUDA device.
    """
    if device == "cpu":
        return "cpu"
    from aladin_index.devices.search_device import has_cuda
    from aladin_network.errors import ConfigError

    if has_cuda():
        return "cuda"
    if device == "cuda":
        raise ConfigError("--device cuda: PyTorch finds no CUDA device here; give cpu or auto")
    return "cpu"


def building_device(device: DeviceName) -> str:
    """Return torch's name of the device to build an index on, see `network_device`.

    Where FAISS cannot build on the device that was asked for, one warning says so beforehand.
    """
    chosen = network_device(device)
    if device == "cuda":
        from aladin_index.ann.coarse_quantiser import missing_card

        reason = missing_card()
        if reason is not None:
            _LOG.warning("building the first stage on the CPU: %s", reason)
    return chosen


# A Ray cluster.

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
        help="Number of workers; each loads the network and encodes shard after shard. [default: "
        "as many as the nodes can hold, nodes that join later included]",
    ),
]
RayCpusOption = Annotated[
    int | None,
    typer.Option("--ray-cpus", min=1, help="Cores and reader threads per worker. [default: 1]"),
]


def check_ray_options(ray: str | None, workers: int | None, cpus: int | None) -> None:
    """Reject options for workers without --ray."""
    from aladin_network.errors import InputError

    for name, value in (("--ray-workers", workers), ("--ray-cpus", cpus)):
        if ray is None and value is not None:
            raise InputError(f"{name}: expected also --ray, whose workers it is about")


def workers_device(ray: Any, device: DeviceName) -> str:
    """Return torch's name of the workers' device; "auto" is CUDA if any node has one."""
    from aladin_index.cluster.ray_encoding import has_gpus

    if device == "auto":
        return "cuda" if has_gpus(ray) else "cpu"
    return device


# Indexes.


def checked_index(index: Path) -> Path:
    """Return the index that was named, and name a wrong one before anything heavy is imported."""
    from aladin_service.library.libraries import find_index

    return find_index(index)


INDEX_HELP = "Folder of an index, name of a library, or a folder that one library follows."
IndexArgument = Annotated[
    Path, typer.Argument(metavar="INDEX", callback=checked_index, help=INDEX_HELP)
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="URL of a running service, instead of INDEX; ALADIN_API_KEY is its API key.",
    ),
]
PhotosRootOption = Annotated[
    Path | None,
    typer.Option(
        "--photos-root",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Accept only photos inside this folder, links resolved. [default: photos from "
        "anywhere, with a warning about those outside the source's folder]",
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE.png",
        dir_okay=False,
        help="Draw both curves of the images and of the texts.",
    ),
]

_FACTORS = {"": 1, "B": 1} | {
    f"{prefix}{form}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for form, base in (("B", 1000), ("iB", 1024))
}


def parse_bytes(text: str) -> int:
    """Parse a number of bytes: ``8GiB`` (8 x 1024^3), ``1.5 GB`` (1.5 x 1000^3), ``4096``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2] not in _FACTORS:
        units = ", ".join(unit for unit in _FACTORS if unit)
        raise typer.BadParameter(f"expected a size such as 8GiB, got {text!r} (units: {units})")
    size = int(float(match[1]) * _FACTORS[match[2]])
    if size < 1:
        raise typer.BadParameter(f"expected at least one byte, got {text!r}")
    return size


StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Stop at the first photo, text or line that cannot be used, instead of skipping it.",
    ),
]


def metadata_limits(text: str) -> MetadataLimits:
    """Return the limits for metadata with the size of --max-metadata."""
    from aladin_index.settings import MetadataLimits

    return MetadataLimits(max_bytes=parse_bytes(text))


# Logs.


def set_log_format(chosen: LogFormat | None = None, *, brief: bool = False) -> None:
    """Set the format of all following log messages."""
    from aladin_service.settings import read_settings

    format = read_settings().log_format if chosen is None else chosen
    log_to_stderr(log_setup()._replace(format=format, brief=brief))
