"""A harness that proves that nothing is lost while everything fails, and proves that it can fail: `docs/faults.md`."""
