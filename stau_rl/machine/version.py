"""The version of the package: pyproject.toml, result files and `stau-rl --version` take it from here."""

VERSION = "0.2.0"
