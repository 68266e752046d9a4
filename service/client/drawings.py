"""Asking for the evidence for a score as a picture."""

from __future__ import annotations

from aladin.errors import InputError
from service.client.calls import Call, form_body
from service.client.pictures import PictureSource, can_be_sent_again


def explain_call(
    item_id: str,
    text: str | None,
    query_id: str | None,
    image: PictureSource | None,
    regions: PictureSource | None,
) -> Call[bytes]:
    """Draw the evidence for an item of the index and a text, another item or a photo.

    Args:
        item_id: of a photo for a text, of a text for a photo.
        text: words.
        query_id: of another item of the index.
        image: a photo that is not in the index; its file is read while it is sent.
        regions: of that photo, or instead of it.

    Raises:
        InputError: not exactly one of text, another item and a photo is given.
    """
    photo = {"image": image, "regions": regions}
    files = {name: source for name, source in photo.items() if source is not None}
    given = (text is not None) + (query_id is not None) + bool(files)
    if given != 1:
        raise InputError(f"expected exactly one of text, query_id and a photo, got {given}")
    path = "v1/explain.png"
    if files:
        return Call(
            method="POST",
            path=path,
            read=lambda response: response.content,
            again="always" if all(map(can_be_sent_again, files.values())) else "never",
            body=form_body({"id": item_id}, files),
        )
    named = {"id": item_id, "text": text, "query_id": query_id}
    params = {name: value for name, value in named.items() if value is not None}
    return Call(method="GET", path=path, read=lambda response: response.content, params=params)
