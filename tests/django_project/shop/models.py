from django.db import models


class Order(models.Model):
    number = models.IntegerField(unique=True)
    is_paid = models.BooleanField(default=False)


class Ran(models.Model):
    """A run of a task; of one whose process was killed there may be two."""

    number = models.IntegerField()
