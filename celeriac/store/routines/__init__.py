"""SQL routines beside the tables, for the verbs and for people with psql and nothing else."""
