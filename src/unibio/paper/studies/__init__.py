"""The paper's synthetic study: a file for each figure."""
