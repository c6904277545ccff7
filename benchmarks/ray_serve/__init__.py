"""Ray Serve under load: replicas with a drafter, one of which is killed, and a new drafter while they serve."""
