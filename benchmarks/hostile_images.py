"""Broken pictures, uploaded as whoever searches and as whoever adds items."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import httpx

from benchmarks.broken_images import BrokenImage, broken_images
from benchmarks.hostile_answers import PATIENCE_S, Answers

_CLIENTS = 4
# The items of the pictures that turn out to be sound take each other's place, so that the index,
# and with it the memory that it may take, does not grow.
_ITEMS = 50


def send_images(url: str, count: int, answers: Answers, *, seed: int = 0) -> int:
    """Upload broken pictures, each as a query and as a new item.

    Args:
        url: of the service.
        count: of pictures.
        answers: where what came back is counted.
        seed: another one gives other pictures.

    Returns:
        The number of pictures.
    """
    limits = httpx.Limits(max_connections=_CLIENTS)
    with (
        httpx.Client(base_url=url, timeout=PATIENCE_S, limits=limits, trust_env=False) as client,
        ThreadPoolExecutor(_CLIENTS) as clients,
    ):

        def upload(numbered: tuple[int, BrokenImage]) -> None:
            number, image = numbered
            _send(client, _search(client, number, image), "search", image, answers)
            _send(client, _addition(client, number, image), "add", image, answers)

        # In small steps, as all of them would be in memory before the first was sent.
        pictures = enumerate(broken_images(count, seed))
        for step in iter(lambda: [item for item, _ in zip(pictures, range(64), strict=False)], []):
            list(clients.map(upload, step))
    return count


def _search(client: httpx.Client, number: int, image: BrokenImage) -> httpx.Request:
    target = "images" if number % 2 else "texts"
    if number % 3:
        return client.build_request(
            "POST", f"/v1/search/{target}", files={"image": ("a", image.data)}, data={"k": "2"}
        )
    fields = {"image": base64.b64encode(image.data).decode(), "k": 2}
    return client.build_request("POST", f"/v1/search/{target}", json=fields)


def _addition(client: httpx.Client, number: int, image: BrokenImage) -> httpx.Request:
    fields = {"id": f"hostile/{number % _ITEMS}"}
    params = {"on_duplicate": "replace"}
    if number % 3:
        files = {"image": ("a", image.data)}
        return client.build_request(
            "POST", "/v1/items/images", params=params, files=files, data=fields
        )
    fields["image"] = base64.b64encode(image.data).decode()
    return client.build_request("POST", "/v1/items/images", params=params, json=fields)


def _send(
    client: httpx.Client, request: httpx.Request, group: str, image: BrokenImage, answers: Answers
) -> None:
    asked = f"{group} {image.name}"
    try:
        answer = client.send(request)
    except httpx.TimeoutException:
        answers.fault("hang", asked, f"nothing in {PATIENCE_S:g} s")
    except httpx.TransportError as error:
        answers.fault("server_error", asked, repr(error))
    else:
        answers.answered(group, answer.status_code, asked, answer.content)
