"""Running a solver: the loop, what it measures, when it stops, what it leaves."""
