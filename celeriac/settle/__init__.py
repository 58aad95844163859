"""Write the outcomes of runs to the rows of their tasks."""
