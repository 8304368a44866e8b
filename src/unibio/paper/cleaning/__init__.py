"""The paper's data hyper-cleaning of sentence pairs: its network, its training and its study."""
