"""What schedules are written with: elements read where they are wanted, operands, lanes that reduce, rings, softmax."""
