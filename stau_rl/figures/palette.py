"""The colours and dashes of every figure."""

# Paul Tol's "muted" scheme, made to be told apart under the common colour-vision deficiencies.
COLOURS = (
    "#332288",
    "#CC6677",
    "#117733",
    "#88CCEE",
    "#882255",
    "#DDCC77",
    "#44AA99",
    "#AA4499",
    "#999933",
)
DASHES = ("-", (0, (6, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)))
