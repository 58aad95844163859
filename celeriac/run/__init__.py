"""Turn tickets into outcomes: start, keep the lease, run, watch."""
