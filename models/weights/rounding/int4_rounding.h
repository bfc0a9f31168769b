// Numbers rounded to int4 codes of one scale: whole numbers from -8 to 7.
#pragma once

#include <cstdint>
#include <span>

namespace nodewright {

// The scale with the least sum of squared errors among the candidates: `largest`, the largest magnitude, over 7 to 14
// in steps of a quarter, each rounded to bf16. Over 7 nothing is clipped; larger divisors clip the largest values for
// finer steps of the others. A normal number, also of zeros.
float int4_scale(std::span<const float> values, float largest);

// Codes as compressed-tensors packs them: plus 8, eight to a word, the first in the lowest bits. A code is values[i] /
// scale to nearest, ties to even, and values.size() a multiple of 8.
void pack_int4(std::span<const float> values, float scale, uint32_t* words);

}  // namespace nodewright
