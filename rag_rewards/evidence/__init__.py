"""Evidence: what rewards need from models, and the gatherer that obtains it."""
