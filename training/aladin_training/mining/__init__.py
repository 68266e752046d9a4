"""Offline hard negatives (AOQ): mined once from all training pairs, sampled at every step."""
