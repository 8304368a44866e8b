"""Noisy labels: how labels go wrong, a model that is fitted with that in mind, and which labels to look at."""
