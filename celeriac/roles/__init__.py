"""Turn functions into roles, which are declared, checked and registered."""
