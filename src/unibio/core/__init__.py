"""The vocabulary: problem, batches, oracles, coordinates, linear algebra. No algorithm lives here."""
