"""``aladin index upgrade``: another model for a live index, without a pause."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aladin_service.commands.index.build_options import (
    MODEL_HELP,
    BuildDeviceOption,
    MaxPixelsOption,
    ReadersOption,
    image_limits,
)
from aladin_service.commands.options import (
    DetectorOption,
    IndexArgument,
    detector_for,
    named_detector,
    network_device,
)
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.format.layout import EngineLocation
    from aladin_index.upgrade.run import UpgradeReport, UpgradeSettings
    from aladin_network.detectors.base import Detector
    from aladin_network.types import Progress

NewModelOption = Annotated[
    Path | None, typer.Option("--model", metavar="MODEL", help=f"The new model. {MODEL_HELP}")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the unfinished upgrade; --model is not needed.")
]
SkipMissingOption = Annotated[
    bool,
    typer.Option(
        "--skip-missing",
        help="Finish without the items that cannot be encoded again, such as photos whose files "
        "are gone. Without the option the old model goes on answering for them.",
    ),
]
DiscardOption = Annotated[bool, typer.Option("--discard", help="Give the unfinished upgrade up.")]
QueriesOption = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Texts, one per line, by which the bridge and the old model are compared. [default: "
        "the captions of photos and the texts of the index]",
    ),
]
PartItemsOption = Annotated[
    int,
    typer.Option(
        "--part-items",
        min=1,
        help="Items after which what is encoded is stored and searched; a kill loses at most so "
        "many.",
    ),
]
UpgradeBatchOption = Annotated[
    int, typer.Option("--batch-size", min=1, help="Items that are encoded together.")
]


def upgrade(
    index: IndexArgument,
    model: NewModelOption = None,
    resume: ResumeOption = False,
    skip_missing: SkipMissingOption = False,
    discard: DiscardOption = False,
    queries: QueriesOption = None,
    detector: DetectorOption = None,
    max_pixels: MaxPixelsOption = None,
    batch_size: UpgradeBatchOption = 128,
    part_items: PartItemsOption = 1024,
    readers: ReadersOption = None,
    device: BuildDeviceOption = "cpu",
) -> None:
    """Give a live index another model, without a pause.

    In: INDEX and the new model. Photos are read again from their files, or as the index keeps them,
    and texts from the index. Out: a new generation of the new model, live in one step when all
    items are encoded, with the additions and deletions that were made meanwhile; `aladin index
    rollback` goes back in one step.

    Running services answer all the time. First a sample of the items is encoded; from then on both
    models answer, each for the items that it has encoded, with scores on one scale, and answers say
    so. Items not yet encoded by the new model are searched with the new model's queries, mapped to
    the old encodings by a linear bridge, if that finds more on the sample than the old model.

    The command can be killed at any moment and run again with --resume. Items that cannot be
    encoded again are named on stderr, and the command ends with exit code 2 before the switch: run
    it again with --resume when they are back, or with --resume --skip-missing. Until it is finished
    or given up with --discard, no other command writes a generation of the index.

    An index in a vector database is copied into INDEX/upgrade, encoded again there, and pushed as a
    new generation; the old model answers alone until that is live.

    What was fitted to the old model does not carry over; stdout names the commands that fit it
    anew. The calibration and the hubness correction of the new model's checkpoint are taken.
    """
    from aladin_index.upgrade.encoding import EncodingSettings
    from aladin_index.upgrade.run import UpgradeSettings
    from aladin_network.errors import InputError
    from aladin_service.library.places import model_folder

    if discard:
        if model is not None or resume or skip_missing:
            raise InputError("--discard: expected no other option with it")
        _discard(index)
        return
    folder = None if model is None else model_folder(model)
    on = network_device(device)
    settings = UpgradeSettings(
        resume=resume,
        skip_missing=skip_missing,
        queries=_lines(queries),
        encoding=EncodingSettings(
            batch_size=batch_size,
            part_items=part_items,
            readers=readers or os.cpu_count() or 1,
            limits=image_limits(max_pixels),
        ),
        device=on,
    )
    finder = _detector(index, folder, detector, on)
    with _explained(index), stderr_progress() as progress:
        report = _upgrade(index, folder, settings, progress, finder)
    _print(index, report)


def _upgrade(
    index: Path,
    folder: Path | None,
    settings: UpgradeSettings,
    progress: Progress,
    regions: Detector | None,
) -> UpgradeReport:
    """Upgrade an index in files or in a vector database."""
    from aladin_index.format.layout import location_of
    from aladin_index.open import connect
    from aladin_index.upgrade.engines import upgrade_engine_index
    from aladin_index.upgrade.run import upgrade_index
    from aladin_service.settings import read_settings

    location = location_of(index)
    if location is None:
        return upgrade_index(index, folder, settings, progress, regions)
    options = read_settings().engine_options
    with closing(connect(location, options)) as client:
        # No call takes longer than its time limit.
        return upgrade_engine_index(
            index, location, client, folder, settings, progress, regions, options.timeout_s
        )


def _lines(queries: Path | None) -> tuple[str, ...]:
    if queries is None:
        return ()
    lines = queries.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line.strip())


def _detector(
    index: Path, folder: Path | None, detector: str | None, device: str
) -> Detector | None:
    """Load the detector of a new model that reads regions, if one is named."""
    from aladin_index.format.models import model_folder
    from aladin_index.format.upgrade_plan import read_plan
    from aladin_network.graphs.loading import load_for_inference

    if named_detector(detector) is None:
        return None
    if folder is None:
        plan = read_plan(index)
        if plan is None:
            return None
        folder = model_folder(index, plan.model.id)
    return detector_for(load_for_inference(folder).model.image.encoder, detector, device)


@contextmanager
def _explained(index: Path) -> Generator[None]:
    """Name the items that keep an upgrade from its end, and tell how an interrupted one goes on."""
    from aladin_index.format.layout import UPGRADE
    from aladin_index.upgrade.run import MissingSourcesError

    try:
        yield
    except MissingSourcesError as error:
        for item_id, reason in error.skipped:
            typer.echo(f"skipped {item_id}: {reason}", err=True)
        raise
    except KeyboardInterrupt:
        if (index / UPGRADE).is_dir():
            typer.echo(f"stopped: aladin index upgrade {index} --resume goes on", err=True)
        raise


def _discard(index: Path) -> None:
    from aladin_index.format.layout import location_of
    from aladin_index.upgrade.run import discard_upgrade

    location = location_of(index)
    if location is not None:
        _discard_in_engine(index, location)
        return
    plan = discard_upgrade(index)
    if plan is None:
        typer.echo(f"{index}: there is no unfinished upgrade")
    else:
        typer.echo(f"{index}: the upgrade to model {plan.model.id[:12]} is given up")


def _discard_in_engine(index: Path, location: EngineLocation) -> None:
    from aladin_index.open import connect
    from aladin_index.upgrade.engines import discard_engine_upgrade
    from aladin_service.settings import read_settings

    with closing(connect(location, read_settings().engine_options)) as client:
        found = discard_engine_upgrade(index, client)
    given_up = "the upgrade is given up" if found else "there is no unfinished upgrade"
    typer.echo(f"{index}: {given_up}")


def _print(index: Path, report: UpgradeReport) -> None:
    """Print what the index is now, and what has to be done."""
    from aladin_service.reports.upgrade_facts import method_fact

    for item_id, reason in report.skipped:
        typer.echo(f"skipped {item_id}: {reason}", err=True)
    held = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    missing = f", {len(report.skipped)} skipped" if report.skipped else ""
    typer.echo(f"{index}: generation {report.generation}, {held}{missing}, of the new model")
    if report.carried:
        typer.echo(f"  {report.carried} changes came while it was written, and are carried over")
    for target, rest in report.methods.items():
        typer.echo(f"  {target} that were not encoded yet: {method_fact(rest)}")
    for line in _commands(index, report.not_kept):
        typer.echo(f"  fitted to the old model, to be fitted anew: {line}")


def _commands(index: Path, names: Sequence[str]) -> list[str]:
    """Return the commands that fit anew what was fitted to the old model."""
    commands = {
        "tune": f"aladin index tune {index}",
        "correct": "aladin correct MODEL DATA, then a build",
        "calibrate": f"aladin calibrate MODEL DATA --index {index}",
    }
    return [commands[name] for name in names]
