"""What the sampled user turns are about: kinds of talk, their shares, and the words they open with.

The target itself writes the user turns. Left alone it stays close to what it has seen most, so a turn is opened with a
few words that set its kind: a question of everyday life, of reasoning, of programming, in another language. Source code
to talk about comes from `mtpc.distill.source`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# Shares of the paper's data (appendix A: 42 % general, 18 % reasoning, 13 % code, 27 % another language).
SHARES = {"chat": 0.42, "reasoning": 0.18, "code": 0.09, "source": 0.04, "spanish": 0.14, "french": 0.13}
MOST = 4.0

SUBJECTS = (
    "healthy food", "the history of Rome", "the solar system", "a job interview", "climate change", "gardening",
    "learning a language", "a short story for children", "electric cars", "sleep", "the French Revolution",
    "cooking pasta", "photosynthesis", "a wedding speech", "personal finance", "dogs", "the human heart",
    "remote work", "chess", "renewable energy", "the Second World War", "poetry", "volcanoes", "a birthday party",
    "artificial intelligence", "the ocean", "travelling to Japan", "music theory", "stress", "dinosaurs",
    "a cover letter", "democracy", "running", "black holes", "coffee", "the immune system", "an email to my boss",
    "painting", "bees",
)  # fmt: skip
SUBJECTS_ES = (
    "la comida sana", "la historia de España", "el sistema solar", "una entrevista de trabajo", "el cambio climático",
    "los perros", "la fotosíntesis", "el corazón humano", "los volcanes", "la energía solar", "la música",
    "el fútbol", "una carta a un amigo", "el océano", "la poesía", "aprender inglés", "el café",
    "la Revolución francesa", "México",
)  # fmt: skip
SUBJECTS_FR = (
    "la cuisine saine", "l'histoire de France", "le système solaire", "un entretien d'embauche", "le climat",
    "les chiens", "la photosynthèse", "le cœur humain", "les volcans", "l'énergie solaire", "la musique",
    "le football", "une lettre à un ami", "l'océan", "la poésie", "apprendre l'anglais", "le café",
    "la Révolution française", "Paris",
)  # fmt: skip
TASKS = (
    "lists", "strings", "dictionaries", "prime numbers", "a binary search tree", "dates", "a CSV file", "matrices",
    "a linked list", "regular expressions", "JSON", "sorting", "recursion", "files", "a queue", "an HTTP request",
    "sets",
)  # fmt: skip

# {} stands for one of the kind's subjects.
OPENINGS: dict[str, tuple[tuple[str, ...], Sequence[str]]] = {
    "chat": (
        (
            "", "", "What", "How", "Can you", "Why", "Write", "Explain", "Give me", "I need", "Summarize", "Rewrite",
            "Tell me about {}", "What should I know about {}", "Write a short text about {}", "Give me advice on {}",
            "Explain {} to", "I have a question about {}:", "Make a list of", "Describe", "Compare",
            "Help me with {}", "What is the difference between", "Write a dialogue about {}",
            "Edit this paragraph about {}:",
        ),
        SUBJECTS,
    ),
    "reasoning": (
        (
            "Solve", "Calculate", "A train", "If", "How many", "What is the probability", "Find the value of",
            "A store", "John has", "The sum of", "Prove that", "A rectangle", "Simplify", "Maria buys",
            "What is the next number", "Solve the equation", "A farmer", "Explain step by step how to",
            "Three friends", "What is the area",
        ),
        (),
    ),
    "code": (
        (
            "Write a Python function", "Write a Python program that", "How do I", "Implement", "Write a function to",
            "Write Python code for {}", "Create a Python class", "Fix this Python code:",
            "Explain how {} work in Python", "Write a Python function about {} that", "Write a unit test",
            "Write a JavaScript function", "Write a SQL query",
        ),
        TASKS,
    ),
    "spanish": (
        (
            "¿Qué es", "¿Cómo puedo", "¿Por qué", "¿Cuál es la diferencia entre", "Escribe un texto sobre {}",
            "Explica en español qué es", "Háblame de {}", "Dame una lista de", "¿Qué sabes de {}",
            "Escribe en español", "Responde en español: ¿", "Necesito ayuda con {}", "Cuéntame una historia sobre {}",
            "Traduce al español:",
        ),
        SUBJECTS_ES,
    ),
    "french": (
        (
            "Qu'est-ce que", "Comment puis-je", "Pourquoi", "Quelle est la différence entre", "Écris un texte sur {}",
            "Explique en français ce qu'est", "Parle-moi de {}", "Donne-moi une liste de", "Que sais-tu de {}",
            "Réponds en français :", "J'ai besoin d'aide avec {}", "Raconte une histoire sur {}",
            "Traduis en français :",
        ),
        SUBJECTS_FR,
    ),
}  # fmt: skip


class Opening(NamedTuple):
    """The kind of a user turn and the words that it starts with."""

    kind: str
    words: str


def chances(tokens: Mapping[str, int]) -> dict[str, float]:
    """How likely the next conversation is of each kind, given the tokens that there are of each.

    A kind is chosen by its share, up to four times as often where there is too little of it (much of what the target
    writes in other languages is left out), and as much less often where there is too much.
    """
    total = sum(tokens.values())
    wanted = {kind: (share * total + 1) / (tokens.get(kind, 0) + 1) for kind, share in SHARES.items()}
    weights = {kind: SHARES[kind] * min(MOST, max(1 / MOST, wanted[kind])) for kind in SHARES}
    return {kind: weight / sum(weights.values()) for kind, weight in weights.items()}


def choose_opening(generator: np.random.Generator, tokens: Mapping[str, int]) -> Opening:
    """A kind by its chances and an opening of that kind; the words of the kind "source" are left empty."""
    odds = chances(tokens)
    kind = str(generator.choice(list(odds), p=list(odds.values())))
    if kind not in OPENINGS:
        return Opening(kind, "")
    openings, subjects = OPENINGS[kind]
    words = openings[int(generator.integers(len(openings)))]
    if "{}" in words:
        words = words.format(subjects[int(generator.integers(len(subjects)))])
    return Opening(kind, words)
