"""What runs the studies, keeps their tables, draws their figures and writes the report."""
