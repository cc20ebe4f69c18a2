"""How a chip runs a kernel, by family; here is what divides and orders those that no family takes whole."""
