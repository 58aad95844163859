"""Nothing here touches a server; what is slow on a busy machine is still right."""

from hypothesis import settings

settings.register_profile("pure", deadline=None)
settings.load_profile("pure")
