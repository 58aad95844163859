"""The doctor: what is wrong with a running system, and what cures it. It only reads.

findings   a check's result, and its wording
machinery  checks of what work depends on
work       checks of why work does not go on
embedded   the check of the embedded servers' versions
examine    all checks in their order, for every surface
deploying  stored work that new code cannot run
"""

from celeriac.doctor.examine import Finding, examine

__all__ = ["Finding", "examine"]
