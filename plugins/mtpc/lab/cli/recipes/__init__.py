"""The options of `mtpc train` and `mtpc convert` for each draft method."""
