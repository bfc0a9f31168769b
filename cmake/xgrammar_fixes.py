#!/usr/bin/env python3
# Mends five faults of xgrammar 0.2.8 in its sources: xgrammar_fixes.py FOLDER. cmake/fetch_xgrammar.sh calls it; the tests
# of tests/text/context_free fail without any of them.
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
    # `a|a(a|)` also took "aaa": states with the same past and states with the same future were made one in one round.
    ("cpp/fsm.cc",
     """    for (int i = 0; i < n; i++) {
      int outgoing_count = outgoing_distinct_count[i];""",
     """    // Changed by Nodewright: cmake/xgrammar_fixes.py
    for (int i = 0; i < n && !is_equiv_successor; i++) {
      int outgoing_count = outgoing_distinct_count[i];"""),
    # Ranges of characters took surrogates, which are no UTF-8.
    ("cpp/fsm_builder.cc",
     """  // Step2. Divide the range into several ranges, which contain characters with different lengths.
""",
     """  // Changed by Nodewright: cmake/xgrammar_fixes.py
  if (min <= 0xEDBFBF && max >= 0xEDA080) {
    if (min < 0xEDA080) AddPackedUTF8RangeEdges(fsm, from, to, min, 0xED9FBF);
    if (max > 0xEDBFBF) AddPackedUTF8RangeEdges(fsm, from, to, 0xEE8080, max);
    return;
  }
  // Step2. Divide the range into several ranges, which contain characters with different lengths.
"""),
    # They also took what is longer than it need be, and characters beyond U+10FFFF.
    ("cpp/fsm_builder.h",
     """constexpr uint32_t kMin2BytesUnicode = 0xC080;""",
     """// The following changed by Nodewright: cmake/xgrammar_fixes.py
constexpr uint32_t kMin2BytesUnicode = 0xC280;"""),
    ("cpp/fsm_builder.h", "kMin3BytesUnicode = 0xE08080;", "kMin3BytesUnicode = 0xE0A080;"),
    ("cpp/fsm_builder.h", "kMin4BytesUnicode = 0xF0808080;", "kMin4BytesUnicode = 0xF0908080;"),
    ("cpp/fsm_builder.h", "kMax4BytesUnicode = 0xF7BFBFBF;", "kMax4BytesUnicode = 0xF48FBFBF;"),
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
