"""The parallel part of a drafter: a joint distribution over several tokens, drafted in one pass."""
