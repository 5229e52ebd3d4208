"""A world with ground truth: problems whose steps have a computable meaning, and two tiny models that solve them."""
