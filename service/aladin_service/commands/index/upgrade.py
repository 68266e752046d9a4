"""``aladin index upgrade``: another model for a live index."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from aladin_network.types import DeviceName
from aladin_service.commands.flags import Flags, with_flags
from aladin_service.commands.index.build_options import MODEL_HELP, settings_flags
from aladin_service.commands.options import (
    DetectorOption,
    IndexArgument,
    building_device,
)
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.format.skipped import SkippedItem
    from aladin_index.settings import BuildSettings
    from aladin_index.upgrade.run import UpgradeReport

_NAMED = 100
NewModelOption = Annotated[
    Path, typer.Option("--model", metavar="MODEL", help=f"The new model. {MODEL_HELP}")
]
SkipMissingOption = Annotated[
    bool,
    typer.Option(
        "--skip-missing",
        help="Go on without the items that cannot be encoded again, such as photos whose files are "
        "gone; the new generation lacks them.",
    ),
]


def _settings() -> Flags:
    from aladin_index.settings import BuildSettings

    return settings_flags(BuildSettings, "limits", "batch_size", "readers", "device")


@with_flags(settings=_settings)
def upgrade(
    index: IndexArgument,
    model: NewModelOption,
    skip_missing: SkipMissingOption = False,
    detector: DetectorOption = None,
    *,
    settings: BuildSettings,
) -> None:
    """Give a live index another model.

    In: INDEX and the new model. Photos are read again from their files, or as the index keeps them,
    and texts from the index. Out: a new generation of the new model, live in one step when all
    items are encoded, with the changes that were made meanwhile. `aladin index rollback` goes back
    to the old model in one step.

    Running services answer by the old model until that step, and by the new one after it. The
    command can be killed at any moment: run again, it goes on with what it has encoded.

    Items without a source, such as imported encodings without photos, are named on stderr, and the
    command ends with exit code 2 before anything is encoded.

    The settings of the index stay: first stage, form of tokens, fields for filters, candidates.
    What was fitted to the old model does not: stdout names the commands that fit it anew. The
    calibration and the hubness correction of the new model's checkpoint are taken.
    """
    from aladin_index.upgrade.run import upgrade_index
    from aladin_network.graphs.loading import load_for_inference
    from aladin_service.door import detector_for, named_detector
    from aladin_service.library.places import model_folder

    folder = model_folder(model)
    settings = replace(
        settings,
        readers=settings.readers or os.cpu_count() or 1,
        device=building_device(cast(DeviceName, settings.device)),
    )
    finder = None
    if named_detector(detector) is not None:
        encoder = load_for_inference(folder).model.image.encoder
        finder = detector_for(encoder, detector, settings.device)
    with _explained(index, model), stderr_progress() as progress:
        report = upgrade_index(index, folder, settings, progress, finder, skip_missing=skip_missing)
    _print(index, model, report)


@contextmanager
def _explained(index: Path, model: Path) -> Generator[None]:
    """Name the items that have no source, and say how an interrupted upgrade goes on."""
    from aladin_index.upgrade.run import MissingSourcesError

    try:
        yield
    except MissingSourcesError as error:
        _name(error.skipped)
        raise
    except KeyboardInterrupt:
        again = f"aladin index upgrade {index} --model {model}"
        typer.echo(f"stopped: the old model answers; {again} goes on", err=True)
        raise


def _name(skipped: Sequence[SkippedItem]) -> None:
    """Name items on stderr, as many as a reader looks at."""
    for item_id, reason in skipped[:_NAMED]:
        typer.echo(f"skipped {item_id}: {reason}", err=True)
    if len(skipped) > _NAMED:
        typer.echo(f"skipped {len(skipped) - _NAMED} more", err=True)


def _print(index: Path, model: Path, report: UpgradeReport) -> None:
    """Print what the index is now, and what has to be done."""
    _name(report.skipped)
    held = ", ".join(f"{count} {target}" for target, count in report.counts.items())
    if report.was_done:
        typer.echo(f"{index}: generation {report.generation}, {held}, is of this model already")
        return
    missing = f", {len(report.skipped)} skipped" if report.skipped else ""
    typer.echo(f"{index}: generation {report.generation}, {held}{missing}, of the new model")
    if report.carried:
        typer.echo(
            f"  {report.carried} additions and deletions came while it was written; it has them"
        )
    typer.echo("  settings kept: first stage, form of tokens, fields for filters, candidates")
    commands = {
        "tune": f"aladin index tune {index}",
        "correct": f"aladin correct {model} DATA, then a build",
        "calibrate": f"aladin calibrate {model} DATA --index {index}",
    }
    for name in report.fit_anew:
        typer.echo(f"  was fitted to the old model, to be fitted anew: {commands[name]}")
