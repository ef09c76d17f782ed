"""The command `stau-rl`, a file per subcommand."""
