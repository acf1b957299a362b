"""Preparation of rows: from a public data set to the data file of a trainer."""
