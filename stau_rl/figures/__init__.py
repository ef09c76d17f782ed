"""How every figure of the project looks, and how it is written."""
