"""Every numbered claim of the paper, each checked by one function. `unibio verify` runs them."""
