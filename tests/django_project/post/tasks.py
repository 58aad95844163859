"""Tasks of Django's framework: `django.tasks`, or before Django 6.0 the package django-tasks."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def nothing(*args, **kwargs):
    return None


@task
async def nothing_async(*args, **kwargs):
    return None


@task
def answer():
    return 42


@task
async def answer_async():
    return 42


@task(priority=7, queue_name="letters")
def letter(to, copies=1):
    return f"{copies} to {to}"


@task
def value_error():
    raise ValueError("it cannot be")


@task
def system_exit():
    raise SystemExit("it ends")


@task
def nested_error():
    raise ValueError(ValueError("it cannot be"))


@task
def strange():
    return object()


@task(takes_context=True)
def whoami(context, attempt):
    assert context.attempt == attempt
    return context.task_result.id


@task(takes_context=True)
async def whoami_async(context):
    return context.task_result.id


@task(takes_context=True, backend="stubborn")
def second_time(context):
    if context.attempt == 1:
        raise ValueError("not yet")
    return len(context.task_result.worker_ids)
