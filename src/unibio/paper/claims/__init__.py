"""Every numbered claim of the paper, checked by one function each."""
