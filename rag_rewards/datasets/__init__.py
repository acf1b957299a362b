"""Public data sets as training data: their rows, preparation, labels and selection."""
