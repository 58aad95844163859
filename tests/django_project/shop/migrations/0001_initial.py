from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.AutoField(primary_key=True)), ("number", models.IntegerField(unique=True)),
            ("is_paid", models.BooleanField(default=False)),
        ]),
        migrations.CreateModel("Ran", [("id", models.AutoField(primary_key=True)), ("number", models.IntegerField())]),
    ]  # fmt: skip
