"""An index that an engine keeps on other machines: what all engines have in common."""
