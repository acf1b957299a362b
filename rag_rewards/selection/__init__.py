"""Selection of training rows: sampled responses, rules of selection, and training sets."""
