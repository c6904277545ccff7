"""Draft length: the cost of decoding steps, the choice between lengths, and the controller that makes it."""
