"""The HTTP reward server: it scores rows that trainers and other clients send."""
