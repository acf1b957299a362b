"""Public data sets: the formats of their files, and their rows as rows of this package."""
