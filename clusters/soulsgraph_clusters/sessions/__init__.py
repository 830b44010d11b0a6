"""Ray: a session of this machine or a cluster's, and commands as jobs of a cluster."""
