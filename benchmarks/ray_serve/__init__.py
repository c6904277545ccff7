"""Ray Serve under load: a replica is killed, the drafter is exchanged, and replicas scale with the load."""
