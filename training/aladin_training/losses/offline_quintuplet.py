"""Offline hard negatives beside the batch's own (AOQ)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from jaxtyping import Bool, Float
from torch import Tensor, nn

from aladin_network.errors import ConfigError, ShapeError
from aladin_training.losses.negatives import by_pairs, check_pairs, hardest_negatives

Form = Literal["triplet", "quintuplet", "adaptive", "online_quintuplet"]
WeightBy = Literal["offline", "positive"]


class OfflineScores(NamedTuple):
    """Scores of each pair (i, t) of a batch with its offline negatives, each (batch,).

    Attributes:
        text: S(i, t_bar), the image with its offline negative text.
        image: S(i_bar, t), the text with its offline negative image.
        cross_text: S(i_bar, t_bar), the two offline negatives with each other.
        cross_image: S(i_tilde, t_tilde), the image of t_bar with a caption of i_bar. A cross
            score of -inf drops that term; None is for the form without such terms.
    """

    text: Tensor
    image: Tensor
    cross_text: Tensor | None = None
    cross_image: Tensor | None = None


class OfflineQuintupletLoss(nn.Module):
    """A pair should beat the batch's hardest negative and hard ones of the whole training set.

    With p = S(i, t), on the hardest negative of the batch, off the offline one, cr the cross
    pair, g1 and g2 the online and offline margins, summed over pairs and both directions::

        triplet       [g1 - p + on]+ + [g2 - p + off]+
        quintuplet    [g1 - p + on]+ + [g2 - p + off]+ + [g2 - p + cr]+
        adaptive    w [g1 - p + on]+ + [g2 - p + off]+ + [g2 - p + cr]+
                    w = beta - (off - on) / alpha
        online_quintuplet    the quintuplet with cr the pair of the two *online* negatives

    AOQ (Chen et al. 2020) eqs 3, 4 and 5. The weight w is part of the gradient (eq 6) and not
    clamped: it turns negative where the offline negative is much harder than the online one.
    The image's line crosses (i_bar, t_bar), the text's line (i_tilde, t_tilde); the paper prints
    other pairs, of which one would be a positive (Q-2).

    Two ablations of the paper's table 3: "online_quintuplet" is OnlineQuin, whose cross terms are
    those of the batch's hardest negatives of the text and of the image (left out where these belong
    together, Q-4). The adaptive form with `weight_by` "positive" is without OfflineAdap: p replaces
    off in the weight.
    """

    def __init__(
        self,
        form: Form = "triplet",
        online_margin: float = 0.2,
        offline_margin: float = 0.0,
        alpha: float = 0.3,
        beta: float = 1.5,
        weight_by: WeightBy = "offline",
    ) -> None:
        """Choose the form.

        Args:
            form: One of the four above.
            online_margin: The margin g1, in units of the scores.
            offline_margin: The margin g2; 0 in the paper, since these negatives are hard enough.
            alpha: Scale of the adaptive weight, positive.
            beta: The adaptive weight if both negatives are equally hard.
            weight_by: Score that the adaptive weight compares with the online negative's.

        Raises:
            ConfigError: If the form or `weight_by` is unknown, or alpha is not positive.
        """
        super().__init__()
        if form not in get_args(Form):
            known = get_args(Form)
            raise ConfigError(f"offline_quintuplet: unknown form {form!r}, known are {known}")
        if weight_by not in get_args(WeightBy):
            known = get_args(WeightBy)
            raise ConfigError(
                f"offline_quintuplet: unknown weight_by {weight_by!r}, known are {known}"
            )
        if alpha <= 0:
            raise ConfigError(f"offline_quintuplet: alpha must be positive, got {alpha}")
        self.form: Form = form
        self.online_margin = online_margin
        self.offline_margin = offline_margin
        self.alpha = alpha
        self.beta = beta
        self.weight_by: WeightBy = weight_by

    @property
    def takes_cross(self) -> bool:
        """Whether the form has terms of the offline negatives with each other."""
        return self.form in ("quintuplet", "adaptive")

    def forward(
        self,
        scores: Float[Tensor, "batch batch"],
        offline: OfflineScores,
        negatives: Bool[Tensor, "batch batch"],
    ) -> Float[Tensor, ""]:
        """Sum the hinges of a batch whose row n and column n belong together.

        Args:
            scores: Scores of the batch's pairs; row = image, column = text.
            offline: Scores with the offline negatives.
            negatives: True where a pair may serve as an online negative. Where a query has
                none, its online term is 0.

        Raises:
            ShapeError: If the scores are not square, or another tensor does not fit them.
            ConfigError: If the form needs cross scores, and there are none.
        """
        check_pairs(scores, negatives)
        positive = by_pairs(scores, None).own  # (batch,)
        for name, values in offline._asdict().items():
            if values is not None and values.shape != positive.shape:
                raise ShapeError(f"offline.{name} {tuple(positive.shape)}", tuple(values.shape))
        cross = (offline.cross_text, offline.cross_image)
        if self.form == "online_quintuplet":
            cross = _online_cross(scores, negatives)
        of_images = self._line(scores, negatives, positive, offline.text, cross[0])
        of_texts = self._line(scores.T, negatives.T, positive, offline.image, cross[1])
        return of_images + of_texts

    def _line(
        self,
        scores: Float[Tensor, "queries candidates"],
        negatives: Bool[Tensor, "queries candidates"],
        positive: Float[Tensor, " queries"],
        offline: Float[Tensor, " queries"],
        cross: Float[Tensor, " queries"] | None,
    ) -> Float[Tensor, ""]:
        """Sum over the queries of one direction, which is one line of the paper's equations."""
        online = scores.gather(1, hardest_negatives(scores, negatives).unsqueeze(1)).squeeze(1)
        online_cost = (self.online_margin - positive + online).relu()
        if self.form == "adaptive":
            compared = positive if self.weight_by == "positive" else offline
            online_cost = (self.beta - (compared - online) / self.alpha) * online_cost
        costs = online_cost.masked_fill(~negatives.any(dim=1), 0)
        costs = costs + (self.offline_margin - positive + offline).relu()
        if self.form != "triplet":
            if cross is None:
                raise ConfigError(f"offline_quintuplet: form {self.form!r} needs cross scores")
            # relu(-inf) is 0 and so is its derivative: a dropped term has no effect.
            costs = costs + (self.offline_margin - positive + cross).relu()
        return costs.sum()


def _online_cross(
    scores: Float[Tensor, "batch batch"], negatives: Bool[Tensor, "batch batch"]
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Score the hardest negatives of each pair with each other: (i_on, t_on) and (i~, t~).

    Of a batch of pairs, the image of t_on is in its row, and a caption of i_on in its column. A
    score is -inf where the two belong together, or where a query has no negative.
    """
    text, image = hardest_negatives(scores, negatives), hardest_negatives(scores.T, negatives.T)
    both = negatives.any(dim=1) & negatives.any(dim=0)

    def of(rows: Tensor, columns: Tensor) -> Tensor:
        dropped = ~(negatives[rows, columns] & both)
        return scores[rows, columns].masked_fill(dropped, float("-inf"))

    return of(image, text), of(text, image)
