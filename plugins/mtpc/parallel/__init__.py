"""The parallel part of a drafter: a joint distribution over tokens, drafted in one shot, as a chain or a tree."""
