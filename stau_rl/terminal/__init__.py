"""What a command shows: its console, progress, and counts as they are typed."""
