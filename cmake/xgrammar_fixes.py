#!/usr/bin/env python3
# Mends two faults of xgrammar 0.2.8 in its sources: xgrammar_fixes.py FOLDER. cmake/fetch_xgrammar.sh calls it; the tests
# of tests/text/context_free fail without either.
import pathlib
import sys

FIXES = (
    # `(x[0-9]+)?` also took "5": an edge led from its start to its end, which may have ways on, or its start a way back.
    ("cpp/fsm.cc",
     """FSMWithStartEnd FSMWithStartEnd::Optional() const {
  FSM fsm = fsm_.Copy();
  if (!ends_.empty()) {
    fsm.AddEpsilonEdge(start_, ends_.front());
  }
  return FSMWithStartEnd(fsm, start_, ends_);
}""",
     """FSMWithStartEnd FSMWithStartEnd::Optional() const {  // changed by Nodewright: cmake/xgrammar_fixes.py
  FSM fsm = fsm_.Copy();
  auto ends = ends_;
  auto new_start = fsm.AddState();
  fsm.AddEpsilonEdge(new_start, start_);
  ends.push_back(new_start);
  return FSMWithStartEnd(fsm, new_start, ends);
}"""),
    # A token that holds another, behind its first byte, was skipped with those that begin with the other.
    ("cpp/tokenizer_info.cc",
     """    while ((!prefix_stack.empty()) && (token.find(prefix_stack.top().first) == std::string::npos)) {""",
     """    // Changed by Nodewright: cmake/xgrammar_fixes.py
    while ((!prefix_stack.empty()) && (token.rfind(prefix_stack.top().first, 0) == std::string::npos)) {"""),
)


def main(folder):
    for path, old, new in FIXES:
        file = pathlib.Path(folder, path)
        text = file.read_text(encoding="utf-8")
        if text.count(old) != 1:
            sys.exit("xgrammar_fixes: %s does not have the lines to be changed" % path)
        file.write_text(text.replace(old, new), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
