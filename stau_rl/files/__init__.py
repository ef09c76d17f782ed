"""Files written whole, and folders that are locked in use and go on after an interruption."""
