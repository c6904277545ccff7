"""The command line `mtpc`: one module for each command, gathered in `mtpc.cli.main`."""
