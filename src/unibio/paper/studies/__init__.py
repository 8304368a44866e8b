"""The paper's experiments on synthetic problems, and ours beside them: a file for each figure."""
