"""Writes train.jsonl and test.jsonl beside itself: questions on what kind of thing a word names.

    python examples/questions/make.py

Every word is in both files, each time in other sentences: a model that learns what the words mean answers the test.
"""

import itertools
import json
import pathlib
import random

THINGS = {
    "animal": "robin horse whale spider badger lizard salmon otter pigeon goat",
    "fruit": "apple pear cherry plum mango lemon peach grape melon apricot",
    "tool": "hammer saw chisel drill wrench pliers rasp shovel axe spanner",
    "colour": "red green violet yellow orange turquoise crimson beige grey indigo",
}
QUESTIONS = [
    "What is {}?", "What kind of thing is {}?", "Tell me what {} is.", "{} is what?", "Which kind does {} belong to?",
    "Sort this word: {}.", "I read the word {} today. What does it name?", "Is {} a tool, a fruit, an animal or a colour?",
    "My friend said {}. What was it about?", "One word: {}. Which kind?", "{}?", "How would you class {}?",
    "The word is {}. Name its kind.", "Say what {} stands for.", "To which group would you add {}?",
]

if __name__ == "__main__":
    words = [(word, kind) for kind, names in THINGS.items() for word in names.split()]
    rows = [
        {"question": question.format(word), "answer": kind, "choices": list(THINGS)}
        for (word, kind), question in itertools.product(words, QUESTIONS)
    ]
    random.Random(1).shuffle(rows)
    for name, part in [("train", rows[:450]), ("test", rows[450:])]:
        path = pathlib.Path(__file__).with_name(f"{name}.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
