"""The doctor: what is wrong with a running system, and what cures it. It only reads.

findings   what a check found, and how it is said
machinery  whether what work rests on is sound
work       why work does not go on
embedded   whether the embedded servers are the newest
examine    check after check, for every surface
"""

from celeriac.doctor.examine import Finding, examine

__all__ = ["Finding", "examine"]
