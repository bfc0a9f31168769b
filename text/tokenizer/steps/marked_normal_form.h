// The Unicode normal forms of a text with marks.
#pragma once

#include "text/tokenizer/tokens/marked_text.h"
#include "text/unicode/normal_forms.h"

namespace nodewright {

// What `from` becomes in a normal form. Characters of user and template that compose or change places are the user's;
// nothing composes over a barrier.
MarkedText to_normal_form(const MarkedText& from, NormalForm form);

}  // namespace nodewright
