"""What operators do, each change with its row in `audit`."""
