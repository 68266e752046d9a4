"""Vectors of photos and texts whose inner products approximate the alignment.

After LEMUR (arXiv 2601.21853): the alignment of a text with a photo is a sum over words of
f_photo(word), the cosine of the word with its best region. Features phi of a word, one hidden layer
of rectified linear units on random directions, are fixed; f_photo is approximated by a linear
function of them, so that

    alignment(text, photo) ~ <sum over words of phi(word), v_photo> + constant of the text

and a photo is one vector. Three steps fit it to some photos and texts:

1. For a sample of photos, ridge regression of the alignment of whole texts on the texts' features.
   A term that is the same for all photos does not change their order and is subtracted first.
2. The features are reduced to the directions that matter most for these photos' scores (reduced
   rank regression): the best approximation of all scores by so many dimensions.
3. Any photo, now or later, is fitted by least squares to its best cosines with a bank of single
   words, whose factors are stored. Comparing a photo with the bank is nearly all of the time, so
   the bank is small, and its least squares are corrected by ridge regression to those of eight
   times as many words on the sampled photos. A photo's vector does not depend on other photos.

Against the paper: the features are not trained, the reduction takes the place of a wide output,
and the first step regresses on texts in place of words, whose errors add up within a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from aladin_network.config import FirstStageHeadConfig
from aladin_network.errors import ConfigError, IndexCorruptError, ShapeError
from aladin_network.scoring.token_rows import (
    BLOCK_BYTES,
    TokenRows,
    best_cosines,
    sums_of_items,
)
from aladin_network.types import NullProgress, Progress

# Measured on 7,000 photos of Flickr8k for 256 dimensions: 512 units need 35 candidates for a
# fidelity of .99, 1,024 need 31.
_HIDDEN = FirstStageHeadConfig.hidden
# Texts, photos and words that the fit is made of. Measured likewise: 1,000, 2,000 and 3,000 texts
# need 36, 32 and 31 candidates; 1,024, 4,096 and 8,192 words need 42, 35 and 33. Another network,
# 128 dimensions: 8,192 words need 41; 256, 512, 1,024 and 2,048 words alone 92, 54, 47 and 46,
# corrected to the 8,192 words 56, 47, 43 and 42.
FIT_TEXTS, FIT_PHOTOS = 3000, 3000
BANK_WORDS = FirstStageHeadConfig.bank
_WORDS_A_BANK_WORD = 8
# Fewer texts determine the features of words too poorly.
LEAST_TEXTS = 200
# Weights of the penalties, relative to the mean variance of a feature; a tenth or the tenfold
# changes nothing.
_RIDGE, _WORD_RIDGE, _BANK_RIDGE = 1e-2, 1e-3, 1e-3


@dataclass(frozen=True, kw_only=True)
class LearnedStage:
    """The fitted parameters.

    Attributes:
        directions: Random directions of the hidden layer, divided by the words' spread.
        shift: What the hidden layer subtracts.
        reduction: Features of a word (its values, a one, the hidden units) to the query's vector.
        words: Bank of words that photos are compared with.
        factors: A photo's best cosines with the bank to its vector.
        centre: Mean vector of the sampled photos, which is subtracted: it adds the same to the
            score of every photo.
    """

    directions: Float[np.ndarray, "dim hidden"]
    shift: Float[np.ndarray, " hidden"]
    reduction: Float[np.ndarray, "features learned"]
    words: Float[np.ndarray, "words dim"]
    factors: Float[np.ndarray, "learned words"]
    centre: Float[np.ndarray, " learned"]

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.factors.shape[0]

    @property
    def token_dim(self) -> int:
        """Size of a token."""
        return self.directions.shape[0]

    def query_vectors(self, texts: TokenRows) -> Float[np.ndarray, "texts learned"]:
        """Return the vectors of texts: sums over their words."""
        return _text_features(self.directions, self.shift, texts) @ self.reduction

    def photo_vectors(self, photos: TokenRows) -> Float[np.ndarray, "photos learned"]:
        """Fit the vectors of photos by least squares; see `fit_learned_stage`."""
        return _bank_cosines(self.words, photos) @ self.factors.T - self.centre

    def save(self, path: Path) -> None:
        """Write the parameters to a safetensors file.

        Raises:
            OSError: If the disk is full or cannot be written.
        """
        arrays = {name: np.ascontiguousarray(value) for name, value in vars(self).items()}
        # Not `save_file`, whose files others than the owner cannot read.
        path.write_bytes(save(arrays))

    @classmethod
    def load(cls, path: Path, token_dim: int) -> LearnedStage:
        """Read the parameters.

        Args:
            path: File written by `save`.
            token_dim: Size of a token of the collection.

        Raises:
            IndexCorruptError: If the file is damaged, or is not of such tokens.
        """
        try:
            stage = cls(**load_file(path))
        except (OSError, SafetensorError, TypeError) as error:
            raise IndexCorruptError(path, f"not a fitted first stage ({error})") from error
        if stage.token_dim != token_dim:
            reason = f"expected tokens of {token_dim} values, got {stage.token_dim}"
            raise IndexCorruptError(path, reason)
        return stage


def fit_learned_stage(
    photos: TokenRows,
    texts: TokenRows,
    dim: int,
    progress: Progress | None = None,
    bank: int = BANK_WORDS,
    hidden: int = _HIDDEN,
) -> LearnedStage:
    """Fit the first stage to photos and to texts of the kind that will be asked for.

    Args:
        photos: Regions of photos; of more than 3,000 a sample is used.
        texts: Words of texts; of more than 3,000 a sample is used.
        dim: Size of the vectors.
        progress: Receives the texts that are scored against the sampled photos.
        bank: Number of words that a photo is compared with to be fitted, at most those there are;
            the time of a photo is in proportion.
        hidden: Number of units in the hidden layer.

    Raises:
        ConfigError: If there are too few texts, or `dim` is larger than what can be determined.
        ShapeError: If words and regions differ in size.
    """
    progress = progress or NullProgress()
    if photos.values.shape[1] != texts.values.shape[1]:
        raise ShapeError(f"words of {photos.values.shape[1]} values", f"{texts.values.shape[1]}")
    photos, texts = photos.sample(FIT_PHOTOS, seed=0), texts.sample(FIT_TEXTS, seed=1)
    if len(texts.lengths) < LEAST_TEXTS:
        raise ConfigError(
            f"expected at least {LEAST_TEXTS} texts to fit the first stage to, "
            f"got {len(texts.lengths)}"
        )
    most = min(len(texts.lengths), len(photos.lengths), texts.values.shape[1] + hidden)
    if not 1 <= dim <= most:
        raise ConfigError(f"dim: expected 1 to {most} for so many texts and photos, got {dim}")
    directions, shift = _hidden_layer(texts.values, hidden)
    features = _text_features(directions, shift, texts)
    scale = _spread(features)
    scores = _centred_scores(texts, photos, progress)
    reduction = _reduce(features / scale, scores, dim)
    reduction /= scale[:, None]
    singles = TokenRows(texts.values, np.ones(len(texts.values), dtype=np.int64))
    words = singles.sample(_WORDS_A_BANK_WORD * bank, seed=2)
    reduced = _text_features(directions, shift, words) @ reduction
    cosines = _bank_cosines(words.values, photos)
    factors = _bank_factors(reduced, cosines, bank)
    return LearnedStage(
        directions=directions,
        shift=shift,
        reduction=reduction,
        words=words.values[:bank],
        factors=factors,
        centre=factors @ cosines[:, :bank].mean(axis=0),
    )


def _bank_factors(
    reduced: Float[np.ndarray, "words learned"],
    cosines: Float[np.ndarray, "photos words"],
    bank: int,
) -> Float[np.ndarray, "learned bank"]:
    """Return what turns a photo's cosines with the first `bank` words into its vector.

    The least squares of these words, corrected by ridge regression so that the sampled photos get
    the vectors that all words give them, but for a constant. For a photo unlike them the
    correction has little effect, and the least squares remain.

    Args:
        reduced: Reduced features of all words.
        cosines: Best cosines of the sampled photos with all words.
        bank: Number of words to use.
    """
    of_all, of_bank = (_least_squares(part) for part in (reduced, reduced[:bank]))
    if len(reduced) <= bank:
        return of_bank.astype(np.float32)
    centred = cosines - cosines.mean(axis=0, dtype=np.float64)  # (photos, words) float64
    missing = centred @ of_all.T - centred[:, :bank] @ of_bank.T
    known = centred[:, :bank]
    correction = np.linalg.solve(_penalised(known, _BANK_RIDGE), known.T @ missing)
    return (of_bank + correction.T).astype(np.float32)


def _least_squares(reduced: Float[np.ndarray, "words learned"]) -> NDArray[np.floating]:
    """Return the factors of ridge regression on the words' features, (learned, words)."""
    return np.linalg.solve(_penalised(reduced, _WORD_RIDGE), reduced.T.astype(np.float64))


def _hidden_layer(
    words: Float[np.ndarray, "words dim"], hidden: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw the directions; words are standardised first."""
    dim = words.shape[1]
    mean, spread = words.mean(axis=0), words.std(axis=0).clip(1e-6)
    drawn = np.random.default_rng(0).standard_normal((dim, hidden), dtype=np.float32)
    directions = drawn * np.float32(2 / dim**0.5) / spread[:, None]
    return directions, mean @ directions


def _text_features(
    directions: NDArray[np.float32], shift: NDArray[np.float32], texts: TokenRows
) -> Float[np.ndarray, "texts features"]:
    """Return the sums of the features of each text's words."""
    values, lengths = texts
    hidden = np.maximum(values @ directions - shift, 0)
    ones = np.ones((len(values), 1), dtype=np.float32)
    of_words = np.concatenate([values, ones, hidden], axis=1)
    if len(lengths) == len(values):  # single words
        return of_words
    return sums_of_items(of_words, lengths)


def _spread(features: Float[np.ndarray, "texts features"]) -> Float[np.ndarray, " features"]:
    """Return the standard deviations; of a constant feature its size, as of equally long texts."""
    spread, size = features.std(axis=0), np.sqrt(np.square(features).mean(axis=0))
    return np.where(spread > 1e-3 * size, spread, size).clip(1e-6).astype(np.float32)


def _bank_cosines(
    words: NDArray[np.float32], photos: TokenRows
) -> Float[np.ndarray, "photos words"]:
    """Return for each photo and word the cosine with the best region, block by block."""
    blocks = photos.blocks(max(1, BLOCK_BYTES // (4 * len(words))))
    none = np.empty((0, len(words)), dtype=np.float32)
    return np.concatenate([none, *(best_cosines(words, block).T for block in blocks)])


def _centred_scores(
    texts: TokenRows, photos: TokenRows, progress: Progress
) -> Float[np.ndarray, "texts photos"]:
    """Score texts against photos, and subtract each text's mean."""
    words_a_block = max(1, BLOCK_BYTES // (4 * max(1, len(photos.values))))
    progress.start(len(texts.lengths), "texts")
    parts: list[NDArray[np.float32]] = []
    for block in texts.blocks(words_a_block):
        best = best_cosines(block.values, photos)
        parts.append(sums_of_items(best, block.lengths))
        progress.advance(len(block.lengths))
    joined = np.concatenate(parts)
    return joined - joined.mean(axis=1, keepdims=True)


def _penalised(features: NDArray[np.floating], weight: float) -> NDArray[np.float64]:
    """Return the second moments with the ridge penalty on the diagonal, in double precision."""
    doubled = features.astype(np.float64)
    moments = doubled.T @ doubled
    return moments + weight * moments.diagonal().mean() * np.eye(len(moments))


def _reduce(
    features: Float[np.ndarray, "texts features"],
    scores: Float[np.ndarray, "texts photos"],
    dim: int,
) -> Float[np.ndarray, "features learned"]:
    """Regress the scores on the features, and keep the best `dim` directions.

    The columns of the result are uncorrelated and of unit variance over the texts, so that all
    directions of a query's vector count alike in the least squares that follow.
    """
    moments = _penalised(features, _RIDGE)
    products = features.T.astype(np.float64) @ scores.astype(np.float64)
    weights = np.linalg.solve(moments, products)
    variances, axes = np.linalg.eigh(moments / len(features))
    root = axes * np.sqrt(variances)
    explained = root.T @ weights  # (features, photos): the scores in uncorrelated coordinates
    _, directions = np.linalg.eigh(explained @ explained.T)
    reduced = (axes / np.sqrt(variances)) @ directions[:, ::-1][:, :dim]
    return reduced.astype(np.float32)
