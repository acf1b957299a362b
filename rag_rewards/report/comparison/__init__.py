"""A page that compares files of scored rows."""
