"""Copying alone: no trained part, drafts are what the request's own text went on with before."""
