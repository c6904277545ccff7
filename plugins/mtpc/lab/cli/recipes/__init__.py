"""The commands `mtpc train NAME` and `mtpc convert NAME` of each draft method."""
