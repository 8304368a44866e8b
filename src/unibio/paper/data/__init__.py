"""Data for hyper-cleaning: reading, label noise, and generators that need no download."""
