"""A small search task with two hops, on which turn credit can be compared with outcome rewards."""
