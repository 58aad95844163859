"""The doctor: what is wrong with a system that runs, and what cures it. It asks, and changes nothing.

findings   what a check found, and how it is said
machinery  whether what work rests on is sound
work       why work does not go on
examine    check after check, for every surface
"""

from celeriac.doctor.examine import Finding, examine

__all__ = ["Finding", "examine"]
