"""Chats about the keys of a recipe: train.jsonl and valid.jsonl, which recipes/chat.toml fine-tunes a model on.

    python examples/chats/make.py        from the root of the repository; reads docs/recipe.md

Each key of the reference gives chats of one to three turns. A question has several wordings; one wording of each key is in
valid.jsonl alone, so that the held-out loss is of questions that were asked in other words."""
import json
import random
import re

PURPOSE = ["What is `{}` for?", "What does the key `{}` do?", "Tell me what `{}` means.", "I found `{}` in a recipe. What is it?",
           "Explain `{}` in a sentence.", "Why would I write `{}`?"]
VALUES = ["Which values may it have?", "What can I write there?", "And what does it take?"]
DEFAULT = ["What is its default?", "What if I leave it out?", "And without the key?"]


def keys(path):
    """Name, values, default and purpose of each key, in the order of the page."""
    section = ""
    for line in open(path, encoding="utf-8"):
        if heading := re.match(r"#+ `\[([\w.]+)\]", line):
            section = heading[1]
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if section and cells and (name := re.fullmatch(r"`(\w+)`", cells[0])) and cells[-1].endswith("."):
            purpose, rest = cells[-1], cells[1:-1]
            yield f"{section}.{name[1]}", rest[-2] if len(rest) > 1 else None, rest[-1] if rest else None, purpose


def chat(rng, key, question):
    name, values, default, purpose = key
    turns = [(question.format(name), purpose)]
    if values and rng.random() < 0.6:
        turns.append((rng.choice(VALUES), f"{values[0].upper()}{values[1:]}."))
    if default and rng.random() < 0.6:
        says = {"must be written": "It has none: it must be written.", "—": "It has none.", "": "It has none."}
        turns.append((rng.choice(DEFAULT), says.get(default, f"Then it is {default}.")))
    return {"messages": [message for user, assistant in turns
                         for message in ({"role": "user", "content": user}, {"role": "assistant", "content": assistant})]}


def main():
    rng = random.Random(42)
    train, valid = [], []
    seen = set()
    for key in keys("docs/recipe.md"):
        if key[0] in seen:
            continue
        seen.add(key[0])
        questions = rng.sample(PURPOSE, 4)
        train += [chat(rng, key, question) for question in questions[:3]]
        valid.append(chat(rng, key, questions[3]))
    rng.shuffle(train)
    for name, chats in (("train", train), ("valid", valid)):
        with open(f"examples/chats/{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in chats)
        print(f"{name}.jsonl: {len(chats)} chats")


if __name__ == "__main__":
    main()
