# The commands of the program and the options that their --help lists, for what must name all of them.
import re


def commands(test):
    """Paths: "generate", "bench decode", and "" for the program."""
    found, waiting = [], [""]
    while waiting:
        path = waiting.pop(0)
        found.append(path)
        listed = test.succeed(*path.split(), "--help").partition("Subcommands:\n")[2].partition("\n\n")[0]
        waiting += [(path + " " + name).strip() for name in re.findall(r"(?m)^  (\S+)", listed)]
    return found


def options(test, path):
    """The names of each option, as ["-m", "--model"], by --help."""
    text = test.succeed(*path.split(), "--help")
    return [re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", names)
            for names in re.findall(r"(?m)^  (-\w(?:, --[\w-]+)*|--[\w-]+(?:, --[\w-]+)*)", text)]
