"""Training on tars that are larger than memory: read front to back, shuffled in a bounded buffer.

An epoch is a pure function of the seed, its number and how many photos each tar holds, not of the
content of the tars. So a run goes on from any batch without decoding what came before, and several
processes agree on every batch without communicating.
"""
