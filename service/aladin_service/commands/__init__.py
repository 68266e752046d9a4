"""The sub-commands of `aladin`; those that share a subject share a file.

Each declares its options and imports what it needs only when it runs: the help of all commands
must not wait for torch.
"""
