"""Topics of the generated user turns: kinds, their shares, and opening words.

The target generates the user turns. Without guidance it repeats the most frequent topics, so each turn starts with a
few words that set its kind: everyday life, reasoning, programming, another language. Questions about source code come
from `mtpc.lab.distill.source`, questions about texts from `mtpc.lab.distill.documents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# Shares of the FastMTP paper's data (appendix A: 42% general, 18% reasoning, 13% code, 27% another language).
SHARES = {
    "chat": 0.32,
    "document": 0.10,
    "reasoning": 0.18,
    "code": 0.09,
    "source": 0.04,
    "spanish": 0.09,
    "french": 0.08,
    "german": 0.04,
    "italian": 0.03,
    "portuguese": 0.03,
}
MAX_CORRECTION = 4.0  # factor by which a kind's share is raised or lowered at most

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
SUBJECTS_DE = (
    "gesundes Essen", "die Geschichte Roms", "das Sonnensystem", "ein Vorstellungsgespräch", "das Klima", "Hunde",
    "die Fotosynthese", "das menschliche Herz", "Vulkane", "Sonnenenergie", "Musik", "Fußball",
    "einen Brief an einen Freund", "den Ozean", "Gedichte", "Kaffee", "Berlin",
)  # fmt: skip
SUBJECTS_IT = (
    "la cucina sana", "la storia di Roma", "il sistema solare", "un colloquio di lavoro", "il clima", "i cani",
    "la fotosintesi", "il cuore umano", "i vulcani", "l'energia solare", "la musica", "il calcio",
    "una lettera a un amico", "l'oceano", "la poesia", "il caffè", "Firenze",
)  # fmt: skip
SUBJECTS_PT = (
    "comida saudável", "a história de Portugal", "o sistema solar", "uma entrevista de emprego", "o clima",
    "os cachorros", "a fotossíntese", "o coração humano", "os vulcões", "a energia solar", "a música", "o futebol",
    "uma carta a um amigo", "o oceano", "a poesia", "o café", "o Brasil",
)  # fmt: skip
TASKS = (
    "lists", "strings", "dictionaries", "prime numbers", "a binary search tree", "dates", "a CSV file", "matrices",
    "a linked list", "regular expressions", "JSON", "sorting", "recursion", "files", "a queue", "an HTTP request",
    "sets",
)  # fmt: skip

# {} is replaced by one of the kind's subjects.
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
    "german": (
        (
            "Was ist", "Wie kann ich", "Warum", "Was ist der Unterschied zwischen", "Schreibe einen Text über {}",
            "Erkläre auf Deutsch, was", "Erzähl mir etwas über {}", "Gib mir eine Liste von", "Was weißt du über {}",
            "Antworte auf Deutsch:", "Ich brauche Hilfe bei", "Übersetze ins Deutsche:",
        ),
        SUBJECTS_DE,
    ),
    "italian": (
        (
            "Che cos'è", "Come posso", "Perché", "Qual è la differenza tra", "Scrivi un testo su {}",
            "Spiega in italiano che cos'è", "Parlami di {}", "Dammi una lista di", "Che cosa sai di {}",
            "Rispondi in italiano:", "Ho bisogno di aiuto con", "Traduci in italiano:",
        ),
        SUBJECTS_IT,
    ),
    "portuguese": (
        (
            "O que é", "Como posso", "Por que", "Qual é a diferença entre", "Escreva um texto sobre {}",
            "Explique em português o que é", "Fale sobre {}", "Faça uma lista de", "O que você sabe sobre {}",
            "Responda em português:", "Preciso de ajuda com", "Traduza para o português:",
        ),
        SUBJECTS_PT,
    ),
}  # fmt: skip


class Opening(NamedTuple):
    """Start of a user turn.

    Attributes:
        kind: Kind of the conversation.
        words: First words of the turn. Empty for kinds whose whole turns come from elsewhere.
    """

    kind: str
    words: str


def kind_probabilities(tokens: Mapping[str, int]) -> dict[str, float]:
    """Return the probability of each kind for the next conversation.

    Kinds with too few tokens are chosen up to `MAX_CORRECTION` times as often as their share, kinds with too many less
    often. This compensates for discarded conversations, which are frequent in other languages.

    Args:
        tokens: Answer tokens of each kind so far.
    """
    total = sum(tokens.values())
    wanted = {kind: (share * total + 1) / (tokens.get(kind, 0) + 1) for kind, share in SHARES.items()}
    weights = {kind: SHARES[kind] * min(MAX_CORRECTION, max(1 / MAX_CORRECTION, wanted[kind])) for kind in SHARES}
    return {kind: weight / sum(weights.values()) for kind, weight in weights.items()}


def choose_opening(generator: np.random.Generator, tokens: Mapping[str, int]) -> Opening:
    """Return a random opening, of a kind drawn from `kind_probabilities`."""
    probabilities = kind_probabilities(tokens)
    kind = str(generator.choice(list(probabilities), p=list(probabilities.values())))
    if kind not in OPENINGS:
        return Opening(kind, "")
    openings, subjects = OPENINGS[kind]
    words = openings[int(generator.integers(len(openings)))]
    if "{}" in words:
        words = words.format(subjects[int(generator.integers(len(subjects)))])
    return Opening(kind, words)
