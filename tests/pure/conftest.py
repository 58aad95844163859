"""Nothing here touches a server; what is slow on a busy machine is still right."""

import pytest
from hypothesis import settings

from tests.examples import EXAMPLES
from tests.pure import configured

settings.register_profile("pure", deadline=None, max_examples=EXAMPLES)
settings.load_profile("pure")


@pytest.fixture
def make() -> configured.Make:
    """Makes an app of no server."""
    return configured.make
