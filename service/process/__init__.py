"""What holds for a whole process, for whoever owns it: how it keeps memory, what decoders print."""
