"""`python -m stau_rl` is the command `stau-rl`."""

from stau_rl.cli.main import main

if __name__ == "__main__":
    main()
