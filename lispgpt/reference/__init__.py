"""What there is by name, from its source: forms, the library's functions, passes, targets, devices, commands, flags."""
