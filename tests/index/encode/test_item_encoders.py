from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from aladin_index.encode.item_encoders import item_encoder
from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.items.uploaded_photos import UploadedPhoto
from aladin_index.settings import EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import ImageError
from aladin_network.inference import encode_photos
from aladin_network.photos.decoding import read_image


def test_photos_are_read_decoded_and_encoded(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    encoder = item_encoder("images", model, EncodeSettings())
    # The second photo is part of a larger file.
    content = [item.path.read_bytes() for item in images[:2]]
    together = tmp_path / "together"
    together.write_bytes(b"".join(content))
    inside = ImageItem(
        id="inside", path=together, uri="x", offset=len(content[0]), length=len(content[1])
    )
    items = [images[0], inside]
    prepared = [encoder.decode(item, encoder.read(item)) for item in items]
    photos = [read_image(item.path) for item in images[:2]]
    assert [each.size_px for each in prepared] == [photo.size for photo in photos]
    expected = encode_photos(model, photos)
    found = encoder.encode(prepared)
    np.testing.assert_array_equal(found.embedding, expected.embedding)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    with pytest.raises(ImageError, match="No such file"):
        encoder.read(ImageItem(id="gone", path=tmp_path / "gone", uri="gone"))
    with pytest.raises(ImageError, match="not an image"):
        encoder.decode(inside, b"words")


def test_a_photo_that_is_cut_short_is_encoded_and_its_metadata_say_so(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    """With and without the metadata that the photo itself tells, as a file and as an upload."""
    file = tmp_path / "a.jpg"
    exif = Image.Exif()
    exif[ExifTags.Base.Model] = "X1"
    Image.radial_gradient("L").save(file, exif=exif)
    file.write_bytes(file.read_bytes()[:-2])
    model = load_checkpoint(tiny_checkpoint).model
    item = ImageItem(id="a", path=file, uri="a.jpg")
    upload = ImageItem(id="b", uri="b", upload=UploadedPhoto(file.read_bytes()))
    for each in (item, upload):
        for told, expected in ((True, {"camera": "X1"}), (False, {})):
            encoder = item_encoder("images", model, EncodeSettings(exif=told))
            prepared = encoder.decode(each, encoder.read(each))
            assert prepared.metadata == expected | {"damage": "cut short at its end"}
            assert len(encoder.encode([prepared]).embedding) == 1


@pytest.mark.gpu
def test_encodings_of_a_gpu_equal_those_of_the_cpu(
    tiny_checkpoint: Path, images: list[ImageItem], texts: list[TextItem]
) -> None:
    on_processor = load_checkpoint(tiny_checkpoint).model
    on_card = load_checkpoint(tiny_checkpoint, "cuda").model
    for target, items in (("images", images[:4]), ("texts", texts[:4])):
        encoder = item_encoder(target, on_processor, EncodeSettings())  # type: ignore[arg-type]
        prepared = [encoder.decode(item, encoder.read(item)) for item in items]
        expected = encoder.encode(prepared)
        found = item_encoder(target, on_card, EncodeSettings()).encode(prepared)  # type: ignore[arg-type]
        digits = 1e-2 if target == "images" else 1e-3  # photos in half precision
        np.testing.assert_allclose(found.embedding, expected.embedding, atol=digits)
        np.testing.assert_array_equal(found.mask, expected.mask)
        real = expected.mask  # what fills up a batch is computed otherwise on a card, and not used
        np.testing.assert_allclose(found.tokens[real], expected.tokens[real], atol=digits)
