"""The demo, and the first index of a new service."""

# Number of scenes that the demo draws. With half as many, seen twice as often, it learns less.
SCENES = 6000
