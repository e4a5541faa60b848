"""Writes train.jsonl and test.jsonl beside itself: questions on what kind of thing a word names.

    python examples/questions/make.py

Every word is in both files, each time in other sentences: a model that learns what the words mean answers the test.
"""

import itertools
import json
import pathlib
import random

THINGS = {
    "animal": "robin horse whale spider badger goat",
    "fruit": "apple cherry plum mango lemon grape",
    "tool": "hammer saw chisel wrench shovel axe",
    "colour": "red green violet beige crimson indigo",
}
BEGINNINGS = ["", "Well, ", "So, ", "Tell me: ", "I ask you, ", "Hello. ", "One more: ", "Now then, "]
QUESTIONS = ["what is {}?", "name the kind of {}.", "what does {} name?", "sort {}.", "which group has {}?"]

if __name__ == "__main__":
    words = [(word, kind) for kind, names in THINGS.items() for word in names.split()]
    rows = [
        {"question": beginning + question.format(word), "answer": kind, "choices": list(THINGS)}
        for (word, kind), beginning, question in itertools.product(words, BEGINNINGS, QUESTIONS)
    ]
    random.Random(1).shuffle(rows)
    for name, part in [("train", rows[150:]), ("test", rows[:150])]:
        path = pathlib.Path(__file__).with_name(f"{name}.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
