"""``aladin index build``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from aladin_service.commands.options import (
    DetectorOption,
    Device,
    MaxMetadataOption,
    PhotosRootOption,
    RayCpusOption,
    RayOption,
    RayWorkersOption,
    RegionLabelsOption,
    RegionsOption,
    check_ray_options,
    detector_for,
    metadata_limits,
    named_detector,
    network_device,
    opened_regions,
    parse_bytes,
    workers_device,
)
from aladin_service.commands.progress import stderr_progress
from aladin_service.reports.index_facts import print_generation, warn_of_places


class Tokens(StrEnum):
    """How the second stage's tokens are stored."""

    float16 = "float16"
    int8 = "int8"
    four_bits = "4bit"
    two_bits = "2bit"


AnnOption = Annotated[
    str,
    typer.Option(
        "--ann",
        metavar="auto|exact|FACTORY",
        help="First stage: chosen by size, memory and recall; exhaustive; or a FAISS factory "
        "string.",
    ),
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        "--memory-budget",
        metavar="SIZE",
        parser=parse_bytes,
        help="What the first stages may take in memory, e.g. 8GiB; for --ann auto.",
    ),
]
RecallOption = Annotated[
    float,
    typer.Option(
        "--ann-recall", help="Share of the exact nearest items that the first stage has to find."
    ),
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--filter-fields",
        metavar="A,B",
        help="Metadata fields that get an index for filters; else all.",
    ),
]


def build(
    model: Annotated[
        Path, typer.Option("--model", metavar="CHECKPOINT", help="Network that encodes the items.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the index; a new one, or one to replace.")
    ],
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="SRC",
            help="JSONL, Karpathy JSON, CSV, TSV, parquet, webdataset tars or folder of photos.",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="SRC",
            help="JSONL or table of texts, or a data set whose captions to take.",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Only this split of a data set; else all of it.")
    ] = None,
    photos_root: PhotosRootOption = None,
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    detector: DetectorOption = None,
    ann: AnnOption = "auto",
    memory_budget: MemoryOption = None,
    ann_recall: RecallOption = 0.99,
    tokens: Annotated[
        Tokens, typer.Option("--tokens", help="How the second stage's tokens are stored.")
    ] = Tokens.float16,
    filter_fields: FieldsOption = None,
    max_metadata: MaxMetadataOption = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            min=1,
            help="Pieces in which the work is saved: after a kill, at most one is done again. The "
            "index is the same for any number. [default: one for about 2,048 items]",
        ),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            "--part",
            "--shard",
            metavar="I/N",
            help="Build only the I-th of N parts of the source, I from 1, e.g. one on each "
            "machine; `aladin index merge` puts the parts together. --shard is another name of it.",
        ),
    ] = "1/1",
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Items that the network takes together.")
    ] = 32,
    readers: Annotated[
        int | None,
        typer.Option(
            "--readers",
            min=1,
            help="Threads that read and decode photos, of each worker with --ray. [default: one a "
            "core]",
        ),
    ] = None,
    device: Annotated[
        Device, typer.Option("--device", help="Where the network runs.")
    ] = Device.cpu,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the interrupted build of the same items in --out."
        ),
    ] = False,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    ray_cpus: RayCpusOption = None,
) -> None:
    """Build an index of photos, of texts, or of both.

    In: --model, and --images, --texts or both. Out: in the folder --out, a new generation of the
    index, live once it is whole, with a copy of the model; on stdout, what it holds. It holds
    these items alone: what was added to an earlier generation stays with that one. Photos that
    cannot be used are left out and named on stderr, as are files that look like photos and are
    of no format that is read, broken links, and links to folders, which are not followed.

    Whoever may search the index can see its photos. A source from elsewhere may name any picture
    of this machine, by an absolute path, by ".." or by a link: --photos-root leaves out what lies
    outside of a folder.

    A build may be killed at any moment and run again with --resume: the index is the same, file
    by file, as that of a build that was left alone. The progress tells where the time goes, in
    seconds that add up to the elapsed time: list (reading SRC), read (photos from the disk),
    decode (to pixels), encode (the network), write, ann. Threads read and decode while the
    network encodes: read_s and decode_s are what it had to wait for them, shared between the two
    by what the threads spend on each. If they are large, more --readers help; if encode_s is, a
    faster --device.

    With --ray the nodes of a cluster encode, and this machine lists, writes and makes the index,
    the same file by file. Nodes need the same versions of the packages as this machine, and the
    photos at the same paths. The shards of a node that is lost go to others, and a build may be
    resumed with --ray or without. The seconds are then shared by what all workers spend on each
    stage, start (until they hold the network) among them. --device says where a worker encodes;
    with cuda each takes a card.
    """
    from aladin_index.build.builder import build_index
    from aladin_index.cluster.pool import WorkerSettings
    from aladin_index.cluster.ray_encoding import connected, ray_encoding
    from aladin_index.encode.item_encoders import RegionSource
    from aladin_index.format.layout import CURRENT, live_generation
    from aladin_index.generations.history import pending_changes
    from aladin_index.settings import BuildSettings
    from aladin_network.checkpoint import load_checkpoint
    from aladin_network.detectors.base import load_detector
    from aladin_service.intake.sources import (
        image_items,
        photo_places,
        text_items,
    )
    from aladin_training.data.records import ignore_skipped, log_skipped
    from aladin_training.data.regions import open_regions

    check_ray_options(ray, ray_workers, ray_cpus)
    with told_how_to_resume(out), ExitStack() as stack:
        cluster = None if ray is None else stack.enter_context(connected(ray))
        own_device = network_device(device if cluster is None else Device.cpu)
        settings = BuildSettings(
            ann=ann,
            memory_budget_bytes=memory_budget,
            ann_recall=ann_recall,
            token_dtype=tokens.value,
            filter_fields=fields_of(filter_fields),
            shards=shards,
            part=_part(part),
            batch_size=batch_size,
            readers=readers or (os.cpu_count() if ray is None else ray_cpus) or 1,
            device=own_device if cluster is None else workers_device(cluster, device),
            metadata=metadata_limits(max_metadata),
            resume=resume,
        )
        store = opened_regions(regions, region_labels)
        places = None if images is None else photo_places(images, photos_root)
        photos = None if images is None else image_items(images, split, store, places)
        reader: RegionSource | None = store
        # Opens the same on a node.
        open_reader: Callable[[], RegionSource] | None = None
        if regions is not None:
            open_reader = partial(open_regions, regions.absolute(), _absolute(region_labels))
        elif photos is not None and (name := named_detector(detector)) is not None:
            encoder = load_checkpoint(model).model.image.encoder
            finder = detector_for(encoder, detector, own_device)
            if finder is not None:
                reader = finder
                open_reader = partial(load_detector, name, settings.device)
        # Named once where the captions are those of the photos.
        on_skip = ignore_skipped if texts == images else log_skipped
        lines = None if texts is None else text_items(texts, split, on_skip)
        before = live_generation(out) if (out / CURRENT).exists() else None
        encoding = None
        if cluster is not None:
            workers = WorkerSettings(
                cpus=ray_cpus or 1, gpus=int(settings.device == "cuda"), workers=ray_workers
            )
            encoding = stack.enter_context(
                ray_encoding(cluster, model, settings, workers, open_reader)
            )
        progress = stack.enter_context(stderr_progress())
        report = build_index(model, out, photos, lines, settings, progress, reader, encoding)
    print_generation(out, report.generation, report.counts, report.left_out)
    if places is not None:
        warn_of_places(places)
    if before not in (None, report.generation) and any(
        any(changes) for changes in pending_changes(out, before).values()
    ):
        typer.echo(
            f"what was added to generation {before} and deleted from it is not part of the new "
            f"one: add it again, or go back with `aladin index rollback {out} --to {before}`",
            err=True,
        )


@contextmanager
def told_how_to_resume(out: Path) -> Generator[None]:
    """Say, where the user stops a build, whether another one can go on from there."""
    from aladin_index.build.plan import can_resume

    try:
        yield
    except KeyboardInterrupt:
        if can_resume(out):
            what = "the same command with --resume goes on from there"
        else:
            what = "nothing was encoded yet, so run the same command again"
        typer.echo(f"stopped: {what}", err=True)
        raise


def fields_of(text: str | None) -> tuple[str, ...] | None:
    """Read the names of --filter-fields; an empty text names none."""
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None:
        raise typer.BadParameter(f"expected a part such as 1/4, got {text!r}", param_hint="--part")
    return int(match[1]), int(match[2])
