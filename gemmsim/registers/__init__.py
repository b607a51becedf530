"""Reads of registers: instruction streams at the ports of a register file, and thread tiles laid out for them."""
