"""From records to what a network reads at each step."""
