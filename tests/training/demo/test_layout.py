"""Groups of scenes."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from random import Random

from aladin_training.demo.layout import BACKGROUNDS, SHAPES, deal_group


def test_scenes_of_a_group_show_the_same_things() -> None:
    random = Random(0)
    for _ in range(50):
        group = deal_group(random, 4)
        assert len({scene.background for scene in group}) == 1
        for attribute in ("shape", "colour", "pattern", "size"):
            bags = [
                Counter(getattr(thing, attribute) for thing in scene.objects) for scene in group
            ]
            assert all(bag == bags[0] for bag in bags), attribute


def test_a_group_deals_different_hands() -> None:
    random = Random(0)
    hands = [
        {tuple((t.shape, t.colour, t.pattern, t.size) for t in scene.objects) for scene in group}
        for group in (deal_group(random, 4) for _ in range(50))
    ]
    assert sum(map(len, hands)) > 2.5 * len(hands)


def test_objects_neither_overlap_nor_leave_the_picture() -> None:
    random = Random(0)
    for _ in range(200):
        (scene,) = deal_group(random, 1)
        for thing in scene.objects:
            for centre in (thing.x, thing.y):
                assert thing.radius < centre < 1 - thing.radius
        for one, other in combinations(scene.objects, 2):
            assert math.dist((one.x, one.y), (other.x, other.y)) > 0.9 * (one.radius + other.radius)
        assert len({thing.shape for thing in scene.objects}) == len(scene.objects) in (2, 3)


def test_everything_occurs() -> None:
    random = Random(0)
    scenes = [deal_group(random, 1)[0] for _ in range(300)]
    assert {scene.background for scene in scenes} == set(BACKGROUNDS)
    assert {thing.shape for scene in scenes for thing in scene.objects} == set(SHAPES)
