"""Options of the commands that may have a Ray cluster do their work."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.commands.device_options import Device

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
    from aladin.errors import InputError

    for name, value in (("--ray-workers", workers), ("--ray-cpus", cpus)):
        if ray is None and value is not None:
            raise InputError(f"{name}: expected also --ray, whose workers it is about")


def workers_device(ray: Any, device: Device) -> str:
    """Return the name by which torch knows the device of each worker.

    Args:
        ray: of `index.cluster.connection.connected`.
        device: auto takes a CUDA card each where nodes have any.
    """
    from index.cluster.connection import has_gpus

    if device is Device.auto:
        return "cuda" if has_gpus(ray) else "cpu"
    return device.value
