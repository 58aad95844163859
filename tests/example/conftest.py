#: Run by `test_example.py`, in processes of its own.
collect_ignore = ["suite"]
