"""The sub-commands of `aladin`, one per file.

Each declares its options and imports what it needs only when it runs: the help of all commands
must not wait for torch.
"""
