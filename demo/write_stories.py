# Writes short English stories for children from the plots and words beside this file, the same ones for the same
# seed. Used by train.py; run alone it prints stories separated by <|end_of_text|>.
import argparse
import multiprocessing
import random
import re
import sys

import story_plots
import story_words as words

END = "<|end_of_text|>"
LATER = ("Later that day", "That day", "That afternoon", "A little later", "After a while", "Soon")
AN_EXCEPTIONS = ("unicorn", "useful", "one")


def parse(text):
    """Turns the plot notation into a tree: a list of str, ('field', name), ('draw', name) and ('pick', [list])."""
    tokens = re.findall(r"[\[\]|]|\{[^}]*\}|[^\[\]|{}]+", " ".join(text.split()))
    position = 0

    def sequence():
        nonlocal position
        nodes = []
        while position < len(tokens) and tokens[position] not in "|]":
            token = tokens[position]
            position += 1
            if token == "[":
                choices = [sequence()]
                while tokens[position] == "|":
                    position += 1
                    choices.append(sequence())
                position += 1  # the closing bracket
                nodes.append(("pick", choices))
            elif token.startswith("{~"):
                nodes.append(("draw", token[2:-1]))
            elif token.startswith("{"):
                nodes.append(("field", token[1:-1]))
            else:
                nodes.append(token)
        return nodes

    tree = sequence()
    assert position == len(tokens), "unbalanced brackets near token %d: %s" % (position, tokens[position:position + 8])
    return tree


def parse_all():
    """Parses every plot once: (intros, [(table, tree)], endings, plots whose friend is not known before)."""
    with_friend = lambda text: text.replace("{FRIEND}", story_plots.FRIEND)
    intros = [parse(part) for part in story_plots.INTROS.split("---")]
    plots = [(table, parse(with_friend(text))) for table, text in story_plots.PLOTS]
    endings = [parse(part) for part in story_plots.ENDINGS.split("---")]
    strangers = [tree for (_, tree), (_, text) in zip(plots, story_plots.PLOTS) if "a new {fkind} came" in text]
    return intros, plots, endings, strangers


def render(nodes, fields, rng):
    """Expands a tree to text."""
    out = []
    for node in nodes:
        if isinstance(node, str):
            out.append(node)
        elif node[0] == "field":
            out.append(fields[node[1]])
        elif node[0] == "draw":
            out.append(rng.choice({"colour": words.COLOURS, "look": words.LOOKS}[node[1]]))
        else:
            out.append(render(rng.choice(node[1]), fields, rng))
    return "".join(out)


def tidy(text):
    """Chooses a or an, starts sentences with a capital, removes the gaps that empty choices leave."""
    text = " ".join(text.split()).replace(" .", ".").replace(" ,", ",")
    text = text.replace("wish for to ", "wish to ")  # "I wish for a house", but "I wish to be tall"

    def article(match):
        word = match.group(2)
        an = word[0].lower() in "aeiou" and not word.lower().startswith(AN_EXCEPTIONS)
        return match.group(1) + ("n " if an else " ") + word

    text = re.sub(r"\b([Aa])\(n\) (\w+)", article, text)
    # A word after ?" or !" may go on: "Help!" cried Tom. After ." it may not.
    return re.sub(r'((?:^|\.|\."|[!?]) )([a-z])', lambda match: match.group(1) + match.group(2).upper(), text)


def character(rng, taken=()):
    """A child or an animal: name, kind and pronouns."""
    she = rng.random() < 0.5
    if rng.random() < 0.6:
        names, kind = (words.GIRLS, "girl") if she else (words.BOYS, "boy")
    else:
        names, kind = words.ANIMAL_NAMES, rng.choice(words.ANIMALS)
    name = rng.choice(names)
    while name in taken:
        name = rng.choice(names)
    pronouns = ("she", "her", "her", "herself") if she else ("he", "him", "his", "himself")
    return name, kind, pronouns


def story_fields(rng, table):
    """Everything a story fixes once: people, pronouns, things, places."""
    name, kind, (he, him, his, himself) = character(rng)
    friend, fkind, (fhe, fhim, fhis, _) = character(rng, (name,))
    parent, phe, phim = rng.choice(words.PARENTS)
    worker, whe, whim = rng.choice(words.WORKERS)
    place, at = rng.choice(words.PLACES)
    like, liking = rng.choice(words.LIKES)
    trait, trait2 = rng.sample(words.TRAITS, 2)
    thing = rng.choice(words.TOYS + words.KEEPSAKES)
    colour, look = rng.choice(words.COLOURS), rng.choice(words.LOOKS)
    fields = dict(
        name=name, kind=kind, he=he, him=him, his=his, himself=himself, He=he.title(), His=his.title(),
        friend=friend, fkind=fkind, fhe=fhe, fhim=fhim, fhis=fhis, FHis=fhis.title(),
        parent=parent, phe=phe, phim=phim, Parent=his.title() + " " + parent,
        worker=worker, whe=whe, whim=whim, the="the", The="The", place=place, at=at,
        at2=rng.choice(["in the garden", "behind the house", "near the fence", "in the yard"]),
        home=rng.choice(words.HOMES if kind in ("girl", "boy") else words.WILD_HOMES),
        like=like, liking=liking, trait=trait, trait2=trait2, thing=thing, colour=colour, look=look,
        obj=rng.choice([colour, look, look + " " + colour]) + " " + thing, toy=rng.choice(words.TOYS),
        animal=rng.choice([a for a in words.ANIMALS if a not in (kind, fkind)]),
        food=rng.choice(words.FOODS), game=rng.choice(words.GAMES), happy=rng.choice(words.FEEL_HAPPY),
        sad=rng.choice(words.FEEL_SAD), sky=rng.choice(words.SKY), time=rng.choice(words.TIMES),
        moral=rng.choice(words.MORALS), sprite=rng.choice(["fairy", "wizard", "genie"]))
    row = rng.choice(getattr(words, table)) if table else ()
    for index, column in enumerate(row):
        fields["t%d" % index] = column.format(him=him, his=his)
    return fields


def write_story(rng, grammar):
    """One story of about 100 to 150 words, plain ASCII, one paragraph."""
    intros, plots, endings, strangers = grammar
    table, plot = rng.choice(plots)
    fields = story_fields(rng, table)
    intro = render(rng.choice(intros), fields, rng)
    known = re.compile(r"\b%s\b" % fields["friend"])  # whole names: every intro of Willa would hold Will
    while plot in strangers and known.search(intro):
        intro = render(rng.choice(intros), fields, rng)
    if intro.startswith(("One", "It was a")) and not intro.startswith("One time"):  # the day has begun already
        fields["time"] = rng.choice(LATER)
    parts = [intro, render(plot, fields, rng)]
    if rng.random() < 0.5:
        parts.append(render(rng.choice(endings), fields, rng))
    return tidy(" ".join(parts))


def write_block(job):
    """Stories of one block: job is (seed, block, count). Blocks are independent, so any number of processes agree."""
    seed, block, count = job
    rng = random.Random(seed * 1000003 + block)
    grammar = parse_all()
    return [write_story(rng, grammar) for _ in range(count)]


def write_stories(count, seed, processes=None, block_size=1000):
    """A list of `count` stories."""
    jobs = [(seed, block, min(block_size, count - block * block_size)) for block in range(-(-count // block_size))]
    with multiprocessing.Pool(processes) as pool:
        return [story for block in pool.imap(write_block, jobs) for story in block]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=None)
    options = parser.parse_args()
    for story in write_stories(options.stories, options.seed, options.processes):
        sys.stdout.write(story + "\n" + END + "\n")


if __name__ == "__main__":
    main()
