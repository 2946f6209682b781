"""Sources of a crate without their tests, for scripts/lines and scripts/arrows."""

import re

# A module under #[cfg(test)]: here, or in a file of its own.
TESTS = re.compile(r'#\[cfg\((?:all\()?test\b[^\n]*\]\n *(?:#\[path = "([^"]*)"\]\n *)?(?:pub(?:\([a-z]+\))? )?mod (\w+)( \{\n|;)')


def without_tests(path, text):
    """The text of a file without its modules for tests, and the paths at which those in files of their own may be."""
    files, at = set(), 0
    while found := TESTS.search(text, at):
        named, module, opening = found.groups()
        start, at = found.span()
        if opening == ";":
            beside = path.parent if path.stem in ("mod", "lib", "main") else path.with_suffix("")
            files |= {path.parent / named} if named else {beside / f"{module}.rs", beside / module / "mod.rs"}
        else:
            indent = re.match(" *", text[text.rfind("\n", 0, start) + 1 :]).group()
            end = text.find(f"\n{indent}}}\n", at)
            text, at = text[:start] + text[end + len(indent) + 2 :], start
    return text, files
