"""Writes docs, notebooks and README tables from committed rows; works in a checkout only."""
