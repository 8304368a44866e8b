"""Runs the studies, saves their tables, draws their figures and writes the report."""
