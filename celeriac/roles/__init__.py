"""Functions → roles: what is declared, checked and registered."""
