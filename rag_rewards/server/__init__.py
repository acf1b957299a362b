"""The HTTP reward server: rows in, scores out, for trainers and for anyone with a socket."""
