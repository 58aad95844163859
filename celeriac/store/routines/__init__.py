"""SQL routines beside the tables: for the verbs, and for whoever has psql and nothing else."""
