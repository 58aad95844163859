"""The storage: tables, routines, migrations, connections, failures."""
