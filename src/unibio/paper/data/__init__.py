"""Data for hyper-cleaning: reading, label noise, and generators that need no download."""

from unibio.paper.data import digits, download, noise, snli, text, toy_nli, vectors

__all__ = ["digits", "download", "noise", "snli", "text", "toy_nli", "vectors"]
