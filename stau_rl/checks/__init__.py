"""Does the code do what it says: engines agree, histories replay, intervals cover."""
