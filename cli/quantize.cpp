// nodewright quantize: a checkpoint in FP8 or int4 made from one that is not quantized.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/visible_text.h"
#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/options/folders/model_folder.h"
#include "cli/output/progress_bar.h"
#include "cli/output/say.h"
#include "engine/byte_size.h"
#include "models/weights/quantize/quantized_checkpoint.h"

namespace nodewright::cli {
namespace {

const std::map<std::string, QuantizedFormat> kFormats = {{"fp8-block", QuantizedFormat::fp8_block},
                                                         {"fp8-row", QuantizedFormat::fp8_row},
                                                         {"int4-g128", QuantizedFormat::int4}};

struct QuantizeOptions {
  std::filesystem::path model, out;
  std::string format;
};

int quantize(const QuantizeOptions& options) {
  check_model_folder(options.model);
  catch_interruption();  // an end in order leaves nothing of the folder
  ProgressBar bar("quantizing " + options.model.string(), ProgressBar::Unit::bytes);
  const QuantizedCheckpoint made = quantize_checkpoint(options.model, options.out, kFormats.at(options.format),
                                                       usual_readers(), {[&bar](uint64_t done, uint64_t total) {
                                                         end_if_interrupted();
                                                         bar.show(done, total);
                                                       }});
  bar.wipe();
  if (!made.too_odd.empty())
    say("nodewright: {} {}, the first is {}: the width is no multiple of 32\n", made.too_odd.size(),
        made.too_odd.size() == 1 ? "matrix stays as it is" : "matrices stay as they are",
        visible_text(made.too_odd.front()));
  say("nodewright: {} matrices in {}; {} of tensors became {} in {}\n", made.matrices, options.format,
      byte_size_text(made.bytes_before), byte_size_text(made.bytes), visible_text(options.out.string()));
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<QuantizeOptions>();
  CLI::App* command = app.add_subcommand("quantize", "Make a checkpoint in FP8 or int4 from one in bf16");
  add_model_option(*command, options->model, "Hugging Face checkpoint folder, or OWNER/NAME in its cache")->required();
  command->add_option("--out", options->out, "folder to write, which must not be there yet")->required();
  command
      ->add_option("--format", options->format,
                   "fp8-block: a scale for each 128 x 128; fp8-row: for each row; int4-g128: for each 128 columns of a "
                   "row")
      ->check(CLI::IsMember({"fp8-block", "fp8-row", "int4-g128"}))
      ->required();
  command->callback([options, &chosen] { chosen = [options] { return quantize(*options); }; });
}

}  // namespace nodewright::cli
