"""For Django: put `"celeriac.contrib.django"` into INSTALLED_APPS (docs/django.md).

apps           finds the Celeriac app, gives it the address from DATABASES; `migrate` brings the engine's schema
databases      which alias the schema lies in, and its address
transactions   what is enqueued within `atomic()` belongs to that transaction
task           `delay_on_commit`, `apply_async_on_commit`
models, admin  the tasks, to be read
checks         what `celeriac check` notes, among Django's
management     `manage.py celeriac …`
"""
