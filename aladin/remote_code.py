"""Refusal of models that need Python code from their own repository.

transformers can run code that a model's folder or hub repository brings along (``auto_map`` in
its configuration), and by default asks on standard input whether it may. Every call here passes
``trust_remote_code=False``: such code is never run, and nobody is asked.
"""

from __future__ import annotations


def load_failure(error: Exception) -> str:
    """Describe why transformers could not load something.

    Args:
        error: Exception that ``from_pretrained`` raised.

    Returns:
        The exception's text, or, where the model needs code of its own, a statement that such
        code is not run: the library's text recommends an argument that users cannot pass.
    """
    text = str(error)
    if "trust_remote_code" in text:
        return "it needs Python code of its own repository, and such code is never run"
    return text
