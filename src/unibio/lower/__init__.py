"""Solvers of the lower level: y ≈ y*(x)."""
