"""What the subcommands of the command line do."""
