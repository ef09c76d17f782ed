"""What a process runs on and shares: its stamp, threads, ranks, time and memory."""
