"""``aladin train``, ``mine`` and ``compare``: training runs, their negatives, their comparison."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from aladin_network.errors import ReportedElsewhereError
from aladin_network.files import check_folder_writable
from aladin_network.types import NullProgress, Progress, ScoreName
from aladin_service.commands.options import (
    DataArgument,
    RegionLabelsOption,
    RegionsOption,
    SplitOption,
    StrictOption,
    chosen_split,
    opened_regions,
)
from aladin_service.commands.progress import stderr_progress
from aladin_service.failures import JOB_FAILED, exit_code
from aladin_service.library.places import with_start_folder
from aladin_training.config.defaults import FEATURE_CACHE, NUM_IMAGES, NUM_TEXTS, Lists


def _print_recipes(wanted: bool) -> None:
    """Print the shipped recipes, and end the command."""
    if not wanted:
        return
    from aladin_training.config.shipped import shipped_recipes

    recipes = shipped_recipes()
    width = max(len(each.name) for each in recipes)
    for each in recipes:
        typer.echo(f"{each.name:{width}}  {each.summary}")
        if each.variants:
            typer.echo(f"{'':{width}}  --set variant={'|'.join(each.variants)}")
    raise typer.Exit


ListOption = Annotated[
    bool,
    typer.Option(
        "--list",
        is_eager=True,
        callback=_print_recipes,
        help="List the recipes of this package, and exit.",
    ),
]


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe in TOML (data, network, stages), or the name of one from --list.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the run; created if it does not exist.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a value in the recipe; repeatable."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted run in --out.")
    ] = False,
    library: Annotated[
        str | None,
        typer.Option(
            "--library",
            metavar="NAME",
            help="Train the model of a library, or of an index, on its own photos that have a "
            "title, a description or a caption: every tenth one is for validation.",
        ),
    ] = None,
    strict: StrictOption = False,
    list_recipes: ListOption = False,  # noqa: ARG001  its callback lists them
) -> None:
    """Train a network from a recipe.

    In: RECIPE, and the data set and encoders it names. Out: in the folder --out, the best and the
    last checkpoint, TensorBoard logs and a plot of every stage; the path of the final checkpoint
    is printed on stdout. The final checkpoint gets its graphs (see `aladin export onnx`), unless
    the network has none or ALADIN_RUNTIME=torch.

    On several GPUs, or in several processes that share each step and see the same files:
    torchrun --nproc-per-node N -m aladin_service train RECIPE --out DIR

    From photos with titles, descriptions or captions to a search with evidence:
    aladin train finetune-clip --library ~/Pictures --out runs/mine
    aladin photos ~/Pictures --model runs/mine/checkpoint
    """
    from aladin_training.config.shipped import find_recipe

    path = find_recipe(recipe)
    check_folder_writable(out)
    from aladin_training.config.recipe import load_recipe
    from aladin_training.data.records import strict_data
    from aladin_training.parallel.distributed import distributed_job, is_main_process
    from aladin_training.stages.run import run_recipe

    overrides = overrides or []
    if library is not None:
        from aladin_service.library.training_data import library_data

        overrides = [*library_data(library, out / "library.jsonl").overrides, *overrides]
    try:
        with (
            strict_data(strict),
            distributed_job(),
            stderr_progress() if is_main_process() else silence() as progress,
        ):
            chosen = with_start_folder(load_recipe(path, overrides))
            result = run_recipe(chosen, out, resume=resume, progress=progress)
            reports = is_main_process()
    except ReportedElsewhereError as error:
        raise typer.Exit(exit_code(error)) from None
    if reports:
        from aladin_network.graphs.export import export_where_possible

        export_where_possible(result.checkpoint)
        typer.echo(str(result.checkpoint))


@contextmanager
def silence() -> Generator[Progress]:
    """Silence this process: another process of the job reports."""
    logging.disable(logging.WARNING)
    try:
        yield NullProgress()
    finally:
        logging.disable(logging.NOTSET)


def mine(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Folder of the network that scores.")
    ],
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", help="File of the negatives; safetensors.")],
    split: SplitOption = "train",
    score: Annotated[ScoreName, typer.Option("--score", help="Score to mine by.")] = "matching",
    texts: Annotated[
        int, typer.Option("--texts", min=1, help="Captions to keep for each photo.")
    ] = NUM_TEXTS,
    images: Annotated[
        int, typer.Option("--images", min=1, help="Photos to keep for each caption.")
    ] = NUM_IMAGES,
    memory_mb: Annotated[
        int, typer.Option("--memory-mb", min=1, help="Maximum MiB of scores held in memory.")
    ] = 512,
    cache: Annotated[
        Path, typer.Option("--cache", help="Folder for the outputs of frozen encoders.")
    ] = Path(FEATURE_CACHE),
    regions: RegionsOption = None,
    region_labels: RegionLabelsOption = None,
    strict: StrictOption = False,
) -> None:
    """Find the hardest negatives of all photos and captions.

    In: CHECKPOINT, and the photos and captions of DATA. Out: in the file --out, for each photo
    the captions and for each caption the photos that score highest and do not belong to it; the
    path of the file is printed on stdout. An existing file with the same content is kept; a file
    mined from other data, by another network or with other settings is never replaced.
    """
    from aladin_network.checkpoint import load_checkpoint
    from aladin_network.files import check_writable
    from aladin_training.data.records import strict_data
    from aladin_training.data.selection import read_trained
    from aladin_training.mining.miner import mine_file

    check_writable("--out", out)
    store = opened_regions(regions, region_labels)
    with strict_data(strict), stderr_progress() as progress:
        teacher = load_checkpoint(checkpoint)
        recipe = teacher.provenance.recipe
        mine_file(
            teacher,
            read_trained(data, chosen_split(split), recipe, require_photos=store is None),
            out,
            cache=cache.expanduser(),
            lists=Lists(score, texts, images),
            memory_budget_bytes=memory_mb * 2**20,
            progress=progress,
            regions=store,
        )
    typer.echo(str(out))


OverridesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value in every recipe that has the key; repeatable.",
    ),
]
GridOption = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="KEY=V1,V2,...",
        help="Choose each recipe's own value, e.g. final.lr=1e-4,1e-3; repeatable.",
    ),
]
SelectOption = Annotated[
    str, typer.Option("--select", metavar="SPLIT", help="Split that --grid chooses on.")
]
ControlsOption = Annotated[
    bool,
    typer.Option(
        "--controls", help="Add recipes with as many steps as those that take more beside them."
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", metavar="NAME", help="Recipe to compare with. [default: the first]"),
]
DataSetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="DATA",
        help='Data set in place of the recipes\' own, "scenes" for drawn ones; repeatable.',
    ),
]
BlocksOption = Annotated[
    int,
    typer.Option(
        "--folds", min=1, help="Blocks of the split's photos that are ranked apart; 5: COCO's 1K."
    ),
]

CrossOption = Annotated[
    int,
    typer.Option(
        "--cross",
        min=1,
        metavar="N",
        help="Deal the photos of the training and the validation split into N folds: run s trains "
        "on all but fold s modulo N, and reports that one.",
    ),
]
FirstSeedOption = Annotated[
    int,
    typer.Option(
        "--first-seed",
        min=0,
        help="Seed of each recipe's first run, such as for a second machine.",
    ),
]
PilotOption = Annotated[
    int | None,
    typer.Option(
        "--pilot", min=1, metavar="N", help="Train N runs only, and print what all would cost."
    ),
]
CorrectOption = Annotated[
    bool, typer.Option("--correct", help="Fit the hubness correction of each run, and report it.")
]
ReportOnlyOption = Annotated[
    bool, typer.Option("--report-only", help="Report the finished runs; train nothing.")
]
NoStepTimesOption = Annotated[
    bool, typer.Option("--no-step-times", help="Do not measure a training step of each recipe.")
]


def compare(
    recipes: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECIPE...",
            help='Recipes, or folders of recipes (files starting with "_" are ignored); '
            "all variants of each.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the comparison; a partial one is continued.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each recipe.")] = 3,
    first_seed: FirstSeedOption = 0,
    baseline: BaselineOption = None,
    data: DataSetsOption = None,
    split: Annotated[str, typer.Option("--split", help="Split to evaluate on.")] = "val",
    folds: BlocksOption = 1,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs to train in parallel.")] = 1,
    overrides: OverridesOption = None,
    grid: GridOption = None,
    select: SelectOption = "selection",
    controls: ControlsOption = False,
    cross: CrossOption = 1,
    pilot: PilotOption = None,
    correct: CorrectOption = False,
    report_only: ReportOnlyOption = False,
    no_step_times: NoStepTimesOption = False,
    strict: StrictOption = False,
) -> None:
    """Train recipes with several seeds and report the gain of each.

    In: RECIPEs and the data sets they name. With --grid, every combination of values is trained
    once for each recipe, and the best on --select with all seeds. Missing runs are trained in the
    folder --out, and interrupted ones continued; a stage that several share is trained once.
    With several --data, each has a folder of its own in --out, beside a report of all.
    Out: report.md and report.html in --out, and the path of the former on stdout; with recipes
    that a paper claims something of, the report says what was confirmed, and claims.json and
    ranks.npz keep what it comes from. With --pilot, what all would cost on stdout, and no report.
    A failed run does not stop the others: it is named in the report and on stderr, and the exit
    code is 1.
    """
    from aladin_training.comparison.compare import compare as compare_plan
    from aladin_training.comparison.data_sets import (
        SCENES,
        compare_on_each,
        draw_scenes,
        find_data_sets,
    )
    from aladin_training.comparison.grid import parse_grid
    from aladin_training.comparison.pilot import run_pilot
    from aladin_training.comparison.plan import Choices, Reported, load_plan
    from aladin_training.data.records import strict_data

    check_folder_writable(out)
    changes, grids = overrides or [], parse_grid(grid or [])
    choices, reported = Choices(grids, select), Reported(split, folds, cross)
    data_sets = find_data_sets(data or [], out)
    settings = [[*changes, f"data.source={json.dumps(each.source)}"] for each in data_sets]
    folders = [out / each.name for each in data_sets] if len(data_sets) > 1 else [out]
    plans = [
        load_plan(recipes, seeds, folder, reported, baseline, set_, choices, first_seed)
        for folder, set_ in zip(folders, settings or [changes], strict=True)
    ]
    with strict_data(strict), stderr_progress() as progress:
        if SCENES in (data or []) and not report_only:
            draw_scenes(out, progress)
        if pilot is not None:
            for plan in plans:
                typer.echo(run_pilot(plan, pilot, controls=controls, progress=progress))
            return
        report, failures = compare_on_each(
            plans,
            out,
            lambda plan: compare_plan(
                plan,
                jobs=jobs,
                train=not report_only,
                step_times=not no_step_times,
                controls=controls,
                correct=correct,
                progress=progress,
            ),
        )
    typer.echo(str(report))
    for label, reason in failures.items():
        typer.echo(f"error: {label}: {reason}", err=True)
    if failures:
        raise typer.Exit(JOB_FAILED)
