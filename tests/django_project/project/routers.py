class Other:
    """No table of the project's lies in the other database."""

    def allow_migrate(self, db, *_, **__):
        return db == "default"
