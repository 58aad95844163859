"""What is stored: tables, routines, migrations, connections, failures."""
