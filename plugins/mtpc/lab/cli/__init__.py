"""The command line `mtpc`: one module for each command, gathered in `mtpc.lab.cli.main`."""
